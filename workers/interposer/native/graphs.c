/* Keeps a clone of each instantiated graph, to count, time and observe its kernels. */
#include "graphs.h"

#include <stdlib.h>
#include <string.h>

#include "graph_parts.h"
#include "hooks.h"
#include "observe.h"
#include "record.h"

enum { MOST_DEPTH = 4, TIMED_LAUNCHES = 3 };

static kw_graph *graphs;

static kw_graph **place_of(CUgraphExec exec)
{
    kw_graph **place = &graphs;
    while (*place && (*place)->exec != exec)
        place = &(*place)->next;
    return place;
}

static void free_graph(kw_graph *graph)
{
    kw_graph_untime(graph);
    if (graph->clone)
        KW_CU(cuGraphDestroy, graph->clone);
    free(graph->nodes);
    free(graph);
}

static int add_node(kw_graph *graph, CUgraphNode node, kw_shape *shape)
{
    if (graph->count == graph->capacity) {
        unsigned capacity = graph->capacity ? 2 * graph->capacity : 64;
        kw_graph_node *grown = realloc(graph->nodes, capacity * sizeof *grown);
        if (!grown)
            return 0;
        graph->nodes = grown;
        graph->capacity = capacity;
    }
    graph->nodes[graph->count++] = (kw_graph_node){node, shape};
    return 1;
}

/* Lists the kernel nodes of a graph and of its child graphs; nodes in a child have no handle. */
static void list(kw_graph *graph, CUgraph from, int depth)
{
    size_t count;
    CUgraphNode *nodes = kw_graph_nodes(from, &count);
    for (size_t i = 0; nodes && i < count; i++) {
        static unsigned char area[KW_MOST_PARAMETER_BYTES + 8];
        int type = -1;
        CUgraph child;
        kw_launch launch;
        if (KW_CU(cuGraphNodeGetType, nodes[i], &type))
            continue;
        if (type == CU_NODE_GRAPH && depth < MOST_DEPTH &&
            !KW_CU(cuGraphChildGraphNodeGetGraph, nodes[i], &child))
            list(graph, child, depth + 1);
        if (type != CU_NODE_KERNEL || !kw_graph_node_launch(nodes[i], &launch))
            continue;
        kw_kernel *kernel = kw_kernel_of(launch.function);
        if (!kernel)
            continue;
        if (!kw_arguments(kernel, &launch, area))
            memset(area, 0, kernel->area_size);
        kw_shape *shape = kw_shape_of(kernel, &launch, area);
        if (shape && !add_node(graph, depth ? NULL : nodes[i], shape))
            break;
    }
    free(nodes);
}

void kw_graph_instantiated(CUgraphExec exec, CUgraph from)
{
    if (kw_settings.mode == KW_INJECT)
        return; /* what is recorded into graphs is replaced already */
    kw_graph_destroyed(exec);
    kw_graph *graph = calloc(1, sizeof *graph);
    if (!graph)
        return;
    graph->exec = exec;
    graph->timed_left = kw_settings.mode == KW_PROFILE ? TIMED_LAUNCHES : 0;
    if (KW_CU(cuGraphClone, &graph->clone, from))
        graph->clone = NULL; /* it holds nodes that cannot be cloned: they are counted only */
    list(graph, graph->clone ? graph->clone : from, 0);
    graph->next = graphs;
    graphs = graph;
}

void kw_graph_destroyed(CUgraphExec exec)
{
    kw_graph **place = place_of(exec), *graph = *place;
    if (graph) {
        *place = graph->next;
        free_graph(graph);
    }
}

void kw_graph_node_set(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params)
{
    kw_graph *graph = *place_of(exec);
    CUgraphNode own;
    if (!graph)
        return;
    kw_graph_untime(graph);
    if (!graph->clone || KW_CU(cuGraphNodeFindInClone, &own, node, graph->clone) ||
        KW_CU(cuGraphKernelNodeSetParams_v2, own, params)) {
        kw_graph_changed(exec);
        return;
    }
    graph->count = 0;
    list(graph, graph->clone, 0);
}

void kw_graph_changed(CUgraphExec exec)
{
    kw_graph *graph = *place_of(exec);
    if (!graph)
        return;
    kw_graph_untime(graph);
    graph->timed_left = 0;
    if (graph->clone) /* it is not what runs any more; the counts remain about right */
        KW_CU(cuGraphDestroy, graph->clone);
    graph->clone = NULL;
    for (unsigned i = 0; i < graph->count; i++)
        graph->nodes[i].handle = NULL;
}

static int is_observed(const kw_graph *graph)
{
    for (unsigned i = 0; i < graph->count; i++)
        if (kw_observes(graph->nodes[i].shape)) {
            if (graph->nodes[i].handle)
                return 1;
            kw_unobserve(graph->nodes[i].shape,
                         "its graph is nested, has nodes that cannot be cloned, or was changed "
                         "after it was instantiated");
        }
    return 0;
}

int kw_graph_launched(CUgraphExec exec, CUstream stream, CUresult *result)
{
    kw_graph *graph = *place_of(exec);
    if (!graph || kw_is_recording(stream))
        return 0;
    for (unsigned i = 0; i < graph->count; i++)
        kw_record_counter(graph->nodes[i].shape->slot)->in_graph++;
    if (is_observed(graph))
        return kw_graph_launch_parts(graph, stream, result);
    if (graph->timed_left && graph->clone) {
        graph->timed_left--;
        int launched = kw_graph_launch_timed(graph, stream, result);
        if (!graph->timed_left)
            kw_graph_untime(graph);
        return launched;
    }
    return 0;
}

void kw_graphs_forget(void)
{
    graphs = NULL; /* their memory belongs to the parent's state */
}
