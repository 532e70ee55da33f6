/* Builds variants of a cloned graph.
 *
 * Timed: an event before each kernel, after all that the kernel waits for, and one after it.
 * Parts: for each kernel that is wanted, its ancestors; then it alone; at last the rest. A part is
 * a clone without the other nodes, so that kernels keep all their attributes.
 */
#include "graph_parts.h"

#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "observe.h"
#include "record.h"

enum { MOST_NODES = 1 << 16, MOST_TIMED = 4096 };

typedef struct {
    CUgraphNode *from, *to;
    CUgraphEdgeData *data;
    size_t count;
} kw_edges;

CUgraphNode *kw_graph_nodes(CUgraph graph, size_t *count)
{
    *count = 0;
    if (KW_CU(cuGraphGetNodes, graph, NULL, count) || !*count || *count > MOST_NODES)
        return NULL;
    CUgraphNode *nodes = calloc(*count, sizeof *nodes);
    if (nodes && KW_CU(cuGraphGetNodes, graph, nodes, count)) {
        free(nodes);
        nodes = NULL;
    }
    return nodes;
}

int kw_graph_node_launch(CUgraphNode node, kw_launch *launch)
{
    CUDA_KERNEL_NODE_PARAMS params;
    memset(&params, 0, sizeof params);
    if (KW_CU(cuGraphKernelNodeGetParams_v2, node, &params))
        return 0;
    *launch = kw_launch_of_node(&params);
    CUlaunchAttributeValue value;
    if (!KW_CU(cuGraphKernelNodeGetAttribute, node, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &value))
        memcpy(launch->cluster, value.cluster, sizeof launch->cluster);
    if (!KW_CU(cuGraphKernelNodeGetAttribute, node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value))
        launch->cooperative = value.cooperative != 0;
    return launch->function != NULL;
}

static void free_edges(kw_edges *edges)
{
    free(edges->from);
    free(edges->to);
    free(edges->data);
}

static int read_edges(CUgraph graph, kw_edges *edges)
{
    memset(edges, 0, sizeof *edges);
    if (KW_CU(cuGraphGetEdges_v2, graph, NULL, NULL, NULL, &edges->count))
        return 0;
    edges->from = calloc(edges->count + 1, sizeof *edges->from);
    edges->to = calloc(edges->count + 1, sizeof *edges->to);
    edges->data = calloc(edges->count + 1, sizeof *edges->data);
    if (edges->from && edges->to && edges->data &&
        (!edges->count || !KW_CU(cuGraphGetEdges_v2, graph, edges->from, edges->to, edges->data,
                                 &edges->count)))
        return 1;
    free_edges(edges);
    return 0;
}

/* Adds an event before and after node `index`; 0 if that fails. */
static int add_events(kw_graph *graph, CUgraph into, const kw_edges *edges, CUgraphNode *scratch,
                      unsigned index)
{
    CUgraphNode node, before, after;
    size_t count = 0;
    CUevent *events = graph->events[index];
    if (KW_CU(cuGraphNodeFindInClone, &node, graph->nodes[index].handle, into))
        return 0;
    for (size_t i = 0; i < edges->count; i++)
        if (edges->to[i] == graph->nodes[index].handle &&
            KW_CU(cuGraphNodeFindInClone, &scratch[count++], edges->from[i], into))
            return 0;
    return !KW_CU(cuEventCreate, &events[0], CU_EVENT_DEFAULT) &&
           !KW_CU(cuEventCreate, &events[1], CU_EVENT_DEFAULT) &&
           !KW_CU(cuGraphAddEventRecordNode, &before, into, scratch, count, events[0]) &&
           !KW_CU(cuGraphAddDependencies_v2, into, &before, &node, NULL, 1) &&
           !KW_CU(cuGraphAddEventRecordNode, &after, into, &node, 1, events[1]);
}

static int build_timed(kw_graph *graph)
{
    CUgraph into = NULL;
    kw_edges edges;
    if (!graph->count || graph->count > MOST_TIMED || !read_edges(graph->clone, &edges))
        return 0;
    CUgraphNode *scratch = calloc(edges.count + 1, sizeof *scratch);
    graph->events = calloc(graph->count, sizeof *graph->events);
    int good = scratch && graph->events && !KW_CU(cuGraphClone, &into, graph->clone);
    for (unsigned i = 0; good && i < graph->count; i++)
        if (graph->nodes[i].handle)
            good = add_events(graph, into, &edges, scratch, i);
    good = good && !KW_CU(cuGraphInstantiateWithFlags, &graph->timed, into, 0);
    if (!good)
        graph->timed = NULL;
    if (into)
        KW_CU(cuGraphDestroy, into);
    free(scratch);
    free_edges(&edges);
    return good;
}

void kw_graph_untime(kw_graph *graph)
{
    if (graph->timed)
        KW_CU(cuGraphExecDestroy, graph->timed);
    for (unsigned i = 0; graph->events && i < graph->count; i++)
        for (int end = 0; end < 2; end++)
            if (graph->events[i][end])
                KW_CU(cuEventDestroy_v2, graph->events[i][end]);
    free(graph->events);
    graph->events = NULL;
    graph->timed = NULL;
}

int kw_graph_launch_timed(kw_graph *graph, CUstream stream, CUresult *result)
{
    if (!graph->timed && !build_timed(graph)) {
        kw_graph_untime(graph);
        graph->timed_left = 0;
        return 0;
    }
    /* Wait before and after: launches of one graph never overlap, and the two forms must not. */
    kw_settle(stream);
    *result = KW_CU(cuGraphLaunch, graph->timed, stream);
    if (*result)
        return 0; /* the application's own launch is to say what is wrong */
    if (kw_settle(stream))
        return 1;
    for (unsigned i = 0; i < graph->count; i++) {
        kw_counter *counter = kw_record_counter(graph->nodes[i].shape->slot);
        float ms;
        if (graph->nodes[i].handle &&
            !KW_CU(cuEventElapsedTime, &ms, graph->events[i][0], graph->events[i][1]) && ms >= 0) {
            counter->timed++;
            counter->ns += (uint64_t)(ms * 1e6);
        }
    }
    return 1;
}

/* One part: nodes of the clone by index, instantiated. */
typedef struct {
    CUgraphExec exec;
    const kw_graph_node *observed; /* the kernel that is this part, if it is to be observed */
    CUstream stream;
} kw_part;

typedef struct {
    CUgraphNode *nodes;
    size_t count;
    unsigned char *done, *keep;
    kw_part *parts;
    unsigned part_count;
} kw_plan;

static void free_plan(kw_plan *plan)
{
    for (unsigned i = 0; i < plan->part_count; i++)
        if (plan->parts[i].exec)
            KW_CU(cuGraphExecDestroy, plan->parts[i].exec);
    free(plan->nodes);
    free(plan->done);
    free(plan->keep);
    free(plan->parts);
}

/* Adds the nodes in `keep` that are not done as a part; nothing if there are none. */
static int add_part(kw_plan *plan, CUgraph graph, const kw_graph_node *observed)
{
    kw_part *part = &plan->parts[plan->part_count];
    CUgraph clone = NULL;
    size_t kept = 0;
    int good = !KW_CU(cuGraphClone, &clone, graph);
    for (size_t i = 0; good && i < plan->count; i++) {
        CUgraphNode node;
        if (plan->keep[i] && !plan->done[i]) {
            plan->done[i] = 1;
            kept++;
        } else
            good = !KW_CU(cuGraphNodeFindInClone, &node, plan->nodes[i], clone) &&
                   !KW_CU(cuGraphDestroyNode, node);
    }
    if (good && kept) {
        good = !KW_CU(cuGraphInstantiateWithFlags, &part->exec, clone, 0);
        part->observed = observed;
        plan->part_count += good;
    }
    if (clone)
        KW_CU(cuGraphDestroy, clone);
    return good;
}

static size_t index_of(const kw_plan *plan, CUgraphNode node)
{
    size_t i = 0;
    while (i < plan->count && plan->nodes[i] != node)
        i++;
    return i;
}

/* Sets `keep` to the ancestors of a node. */
static void mark_ancestors(kw_plan *plan, const kw_edges *edges, CUgraphNode node)
{
    int changed = 1;
    memset(plan->keep, 0, plan->count);
    size_t target = index_of(plan, node);
    while (changed) {
        changed = 0;
        for (size_t i = 0; i < edges->count; i++) {
            size_t from = index_of(plan, edges->from[i]), to = index_of(plan, edges->to[i]);
            if (from < plan->count && to < plan->count && (to == target || plan->keep[to]) &&
                !plan->keep[from])
                plan->keep[from] = changed = 1;
        }
    }
}

/* The next wanted kernel that waits for no other wanted one that is not done; NULL if none. */
static const kw_graph_node *next_wanted(const kw_graph *graph, kw_plan *plan,
                                        const kw_edges *edges, const unsigned char *wanted)
{
    for (unsigned i = 0; i < graph->count; i++) {
        const kw_graph_node *node = &graph->nodes[i];
        int first = 1;
        if (!wanted[i] || plan->done[index_of(plan, node->handle)])
            continue;
        mark_ancestors(plan, edges, node->handle);
        for (unsigned j = 0; j < graph->count && first; j++) {
            size_t other = wanted[j] ? index_of(plan, graph->nodes[j].handle) : plan->count;
            first = other == plan->count || plan->done[other] || !plan->keep[other];
        }
        if (first)
            return node;
    }
    return NULL;
}

/* Marks the first node of each shape that is to be observed; returns how many. */
static unsigned choose(const kw_graph *graph, unsigned char *wanted)
{
    unsigned count = 0;
    for (unsigned i = 0; i < graph->count; i++) {
        int seen = !graph->nodes[i].handle || !kw_observes(graph->nodes[i].shape);
        for (unsigned j = 0; j < i && !seen; j++)
            seen = wanted[j] && graph->nodes[j].shape == graph->nodes[i].shape;
        wanted[i] = !seen;
        count += wanted[i];
    }
    return count;
}

static int make_plan(const kw_graph *graph, kw_plan *plan)
{
    kw_edges edges = {0};
    unsigned char *wanted = calloc(graph->count + 1, 1);
    unsigned targets = wanted ? choose(graph, wanted) : 0;
    plan->nodes = targets ? kw_graph_nodes(graph->clone, &plan->count) : NULL;
    int good = plan->nodes && read_edges(graph->clone, &edges);
    if (good) {
        plan->done = calloc(plan->count + 1, 1);
        plan->keep = calloc(plan->count + 1, 1);
        plan->parts = calloc(2 * targets + 1, sizeof *plan->parts);
        good = plan->done && plan->keep && plan->parts;
    }
    for (const kw_graph_node *node; good && (node = next_wanted(graph, plan, &edges, wanted));) {
        mark_ancestors(plan, &edges, node->handle);
        good = add_part(plan, graph->clone, NULL);
        memset(plan->keep, 0, plan->count);
        plan->keep[index_of(plan, node->handle)] = 1;
        good = good && add_part(plan, graph->clone, node);
    }
    if (good) {
        memset(plan->keep, 1, plan->count);
        good = add_part(plan, graph->clone, NULL);
    }
    free_edges(&edges);
    free(wanted);
    return good;
}

static CUresult launch_part(void *context)
{
    const kw_part *part = context;
    CUresult result = KW_CU(cuGraphLaunch, part->exec, part->stream);
    return result ? result : kw_settle(part->stream);
}

int kw_graph_launch_parts(kw_graph *graph, CUstream stream, CUresult *result)
{
    static unsigned char area[KW_MOST_PARAMETER_BYTES + 8];
    kw_plan plan = {0};
    if (!make_plan(graph, &plan)) {
        free_plan(&plan);
        for (unsigned i = 0; i < graph->count; i++)
            if (kw_observes(graph->nodes[i].shape))
                kw_unobserve(graph->nodes[i].shape, "its graph cannot be run in parts");
        return 0;
    }
    *result = CUDA_SUCCESS;
    kw_settle(stream);
    for (unsigned i = 0; i < plan.part_count && !*result; i++) {
        const kw_graph_node *node = plan.parts[i].observed;
        kw_launch launch;
        plan.parts[i].stream = stream;
        if (node && kw_observes(node->shape) && kw_graph_node_launch(node->handle, &launch) &&
            kw_arguments(node->shape->kernel, &launch, area)) {
            launch.stream = stream;
            *result = kw_observe(node->shape, &launch, area, 1, launch_part, &plan.parts[i]);
        } else
            *result = launch_part(&plan.parts[i]);
    }
    free_plan(&plan);
    return 1;
}
