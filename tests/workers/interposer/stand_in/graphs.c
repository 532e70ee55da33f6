/* Streams and graphs of the stand-in driver: kernel nodes and event nodes. */
#include <stdlib.h>
#include <string.h>

#include "stand_in.h"

enum { MOST_NODES = 256, INVALID = 1 };

struct CUgraphNode_st {
    CUDA_KERNEL_NODE_PARAMS params;
    CUevent event; /* of an event node */
    CUgraphNode before[MOST_NODES], original;
    size_t before_count;
    int gone, ran;
};

struct CUgraph_st {
    CUgraphNode nodes[MOST_NODES];
    size_t count;
};

struct CUstream_st {
    CUgraph recorded;
    CUgraphNode last;
};

static CUstream recording; /* the stream that is being recorded, of at most one */

API cuStreamCreate(CUstream *stream, unsigned flags)
{
    *stream = calloc(1, sizeof **stream);
    return (void)flags, 0;
}
API cuStreamDestroy_v2(CUstream stream) { return free(stream), 0; }
API cuStreamSynchronize(CUstream stream) { return stream && stream == recording ? 900 : 0; }
API cuThreadExchangeStreamCaptureMode(int *mode)
{
    static int current;
    int before = current;
    current = *mode;
    return *mode = before, 0;
}
API cuStreamIsCapturing(CUstream stream, int *status)
{
    return *status = stream && stream == recording, 0;
}
API cuStreamBeginCapture_v2(CUstream stream, int mode)
{
    stream->recorded = calloc(1, sizeof(struct CUgraph_st));
    stream->last = NULL;
    recording = stream;
    return (void)mode, 0;
}
API cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    recording = NULL;
    return *graph = stream->recorded, 0;
}

API cuGraphCreate(CUgraph *graph, unsigned flags)
{
    *graph = calloc(1, sizeof **graph);
    return (int)flags;
}

static CUgraphNode add(CUgraph graph, const CUgraphNode *before, size_t count)
{
    CUgraphNode node = calloc(1, sizeof *node);
    for (size_t i = 0; i < count; i++)
        node->before[node->before_count++] = before[i];
    return graph->nodes[graph->count++] = node;
}

static void keep(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params)
{
    size_t offset, size;
    node->params = *params;
    node->params.parameters = calloc(64, sizeof(void *));
    node->params.extra = NULL;
    for (size_t i = 0; !cuFuncGetParamInfo(params->function, i, &offset, &size); i++)
        node->params.parameters[i] = memcpy(malloc(size), params->parameters[i], size);
}

API cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                            size_t count, const CUDA_KERNEL_NODE_PARAMS *params)
{
    *node = add(graph, before, count);
    keep(*node, params);
    return 0;
}
API cuGraphAddEventRecordNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *before,
                              size_t count, CUevent event)
{
    *node = add(graph, before, count);
    (*node)->event = event;
    return 0;
}
API cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                              const CUgraphEdgeData *data, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i]->before[to[i]->before_count++] = from[i];
    return (void)graph, (void)data, 0;
}
API cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    size_t found = 0;
    for (size_t i = 0; i < graph->count; i++)
        if (!graph->nodes[i]->gone) {
            if (nodes && found < *count)
                nodes[found] = graph->nodes[i];
            found++;
        }
    return *count = found, 0;
}
API cuGraphGetEdges_v2(CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *data,
                       size_t *count)
{
    size_t found = 0;
    for (size_t i = 0; i < graph->count; i++)
        for (size_t j = 0; j < graph->nodes[i]->before_count; j++, found++)
            if (from && found < *count) {
                from[found] = graph->nodes[i]->before[j];
                to[found] = graph->nodes[i];
                memset(&data[found], 0, sizeof data[found]);
            }
    return *count = found, 0;
}
API cuGraphNodeGetType(CUgraphNode node, int *type) { return *type = node->event ? 7 : 0, 0; }
API cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *params)
{
    return *params = node->params, 0;
}
API cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params)
{
    return keep(node, params), 0;
}
API cuGraphKernelNodeGetAttribute(CUgraphNode node, int attribute, CUlaunchAttributeValue *value)
{
    memset(value, 0, sizeof *value);
    return (void)node, (void)attribute, 0;
}

API cuGraphNodeFindInClone(CUgraphNode *found, CUgraphNode node, CUgraph clone)
{
    for (size_t i = 0; i < clone->count; i++)
        if (clone->nodes[i]->original == node && !clone->nodes[i]->gone)
            return *found = clone->nodes[i], 0;
    return INVALID;
}
API cuGraphClone(CUgraph *clone, CUgraph graph)
{
    *clone = calloc(1, sizeof **clone);
    for (size_t i = 0; i < graph->count; i++) {
        CUgraphNode from = graph->nodes[i], to;
        if (from->gone)
            continue;
        to = add(*clone, NULL, 0);
        to->original = from;
        to->event = from->event;
        if (!from->event)
            keep(to, &from->params);
    }
    for (size_t i = 0; i < graph->count; i++) {
        CUgraphNode from = graph->nodes[i], to, before;
        for (size_t j = 0; j < from->before_count; j++)
            if (!cuGraphNodeFindInClone(&to, from, *clone) &&
                !cuGraphNodeFindInClone(&before, from->before[j], *clone))
                to->before[to->before_count++] = before;
    }
    return 0;
}
API cuGraphDestroyNode(CUgraphNode node) { return node->gone = 1, 0; }
API cuGraphDestroy(CUgraph graph) { return graph ? 0 : INVALID; }

API cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
    return (void)flags, cuGraphClone((CUgraph *)exec, graph);
}
API cuGraphExecDestroy(CUgraphExec exec) { return exec ? 0 : INVALID; }
API cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                      const CUDA_KERNEL_NODE_PARAMS *params)
{
    CUgraphNode own;
    if (cuGraphNodeFindInClone(&own, node, (CUgraph)exec))
        return INVALID;
    return keep(own, params), 0;
}

static int is_ready(CUgraphNode node)
{
    for (size_t i = 0; i < node->before_count; i++)
        if (!node->before[i]->ran && !node->before[i]->gone)
            return 0;
    return !node->ran && !node->gone;
}
API cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
    CUgraph graph = (CUgraph)exec;
    int more = 1;
    for (size_t i = 0; i < graph->count; i++)
        graph->nodes[i]->ran = 0;
    while (more) {
        more = 0;
        for (size_t i = 0; i < graph->count; i++) {
            CUgraphNode node = graph->nodes[i];
            if (!is_ready(node))
                continue;
            if (node->event)
                cuEventRecord(node->event, stream);
            else if (stand_in_run(&node->params))
                return INVALID;
            node->ran = more = 1;
        }
    }
    return 0;
}
API cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream) { return cuGraphLaunch(exec, stream); }

int stand_in_records(CUstream stream) { return stream && stream == recording; }
CUresult stand_in_record(const CUDA_KERNEL_NODE_PARAMS *launch)
{
    CUgraphNode node;
    CUresult result = cuGraphAddKernelNode_v2(&node, recording->recorded, &recording->last,
                                              recording->last != NULL, launch);
    recording->last = node;
    return result;
}
