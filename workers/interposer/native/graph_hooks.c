/* The intercepted functions on graphs. */
#include "graphs.h"
#include "hooks.h"
#include "launches.h"

KW_AFTER(cuGraphInstantiateWithFlags, (CUgraphExec * exec, CUgraph graph, unsigned long long flags),
      (exec, graph, flags), kw_graph_instantiated(*exec, graph))
KW_AFTER(cuGraphInstantiateWithParams, (CUgraphExec * exec, CUgraph graph, void *params),
      (exec, graph, params), kw_graph_instantiated(*exec, graph))
KW_AFTER(cuGraphInstantiateWithParams_ptsz, (CUgraphExec * exec, CUgraph graph, void *params),
      (exec, graph, params), kw_graph_instantiated(*exec, graph))
KW_AFTER(cuGraphExecUpdate_v2, (CUgraphExec exec, CUgraph graph, void *info), (exec, graph, info),
      kw_graph_instantiated(exec, graph))
typedef CUresult (*add_function)(CUgraphNode *, CUgraph, const CUgraphNode *, size_t,
                                 const CUDA_KERNEL_NODE_PARAMS *);
typedef CUresult (*set_function)(CUgraphNode, const CUDA_KERNEL_NODE_PARAMS *);
typedef CUresult (*set_exec_function)(CUgraphExec, CUgraphNode, const CUDA_KERNEL_NODE_PARAMS *);

typedef struct {
    void *real;
    CUgraphNode *made, node;
    CUgraph graph;
    CUgraphExec exec;
    const CUgraphNode *before;
    size_t count;
} node_request;

static CUresult add_node(const CUDA_KERNEL_NODE_PARAMS *params, void *context)
{
    const node_request *wanted = context;
    return ((add_function)wanted->real)(wanted->made, wanted->graph, wanted->before, wanted->count,
                                        params);
}

static CUresult set_node(const CUDA_KERNEL_NODE_PARAMS *params, void *context)
{
    const node_request *wanted = context;
    return ((set_function)wanted->real)(wanted->node, params);
}

static CUresult set_exec_node(const CUDA_KERNEL_NODE_PARAMS *params, void *context)
{
    const node_request *wanted = context;
    return ((set_exec_function)wanted->real)(wanted->exec, wanted->node, params);
}

/* Makes or changes a node by `call`, with what replaces its kernel where something does. */
static CUresult node_made(const CUDA_KERNEL_NODE_PARAMS *params, kw_node_call call,
                          node_request *wanted)
{
    CUresult result;
    if (params && kw_enter()) {
        int replaced = kw_replaced_node(params, call, wanted, &result);
        kw_leave();
        if (replaced)
            return result;
    }
    return call(params, wanted);
}

KW_EXPORT CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph,
                                           const CUgraphNode *before, size_t count,
                                           const CUDA_KERNEL_NODE_PARAMS *params)
{
    KW_REAL(cuGraphAddKernelNode_v2);
    node_request wanted = {
        .real = (void *)real, .made = node, .graph = graph, .before = before, .count = count};
    return node_made(params, add_node, &wanted);
}

KW_EXPORT CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node,
                                                 const CUDA_KERNEL_NODE_PARAMS *params)
{
    KW_REAL(cuGraphKernelNodeSetParams_v2);
    node_request wanted = {.real = (void *)real, .node = node};
    return node_made(params, set_node, &wanted);
}

KW_EXPORT CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                                     const CUDA_KERNEL_NODE_PARAMS *params)
{
    KW_REAL(cuGraphExecKernelNodeSetParams_v2);
    node_request wanted = {.real = (void *)real, .exec = exec, .node = node};
    CUresult result = node_made(params, set_exec_node, &wanted);
    if (result == CUDA_SUCCESS && kw_enter()) {
        kw_graph_node_set(exec, node, params);
        kw_leave();
    }
    return result;
}

KW_AFTER(cuGraphExecNodeSetParams, (CUgraphExec exec, CUgraphNode node, void *params),
      (exec, node, params), kw_graph_changed(exec))
KW_BEFORE(cuGraphExecDestroy, (CUgraphExec exec), (exec), kw_graph_destroyed(exec))

#define GRAPH_LAUNCH(name, per_thread) \
    KW_EXPORT CUresult name(CUgraphExec exec, CUstream stream) \
    { \
        CUresult result; \
        CUstream own = (per_thread) && !stream ? CU_STREAM_PER_THREAD : stream; \
        KW_REAL(name); \
        if (kw_enter()) { \
            int launched = kw_graph_launched(exec, own, &result); \
            kw_leave(); \
            if (launched) \
                return result; \
        } \
        return real(exec, stream); \
    }
GRAPH_LAUNCH(cuGraphLaunch, 0)
GRAPH_LAUNCH(cuGraphLaunch_ptsz, 1)

const kw_hook kw_graph_hooks[] = {
    KW_HOOK(cuGraphInstantiateWithFlags),
    KW_HOOK(cuGraphInstantiateWithParams),
    KW_HOOK(cuGraphInstantiateWithParams_ptsz),
    KW_HOOK(cuGraphExecUpdate_v2),
    KW_HOOK(cuGraphAddKernelNode_v2),
    KW_HOOK(cuGraphKernelNodeSetParams_v2),
    KW_HOOK(cuGraphExecKernelNodeSetParams_v2),
    KW_HOOK(cuGraphExecNodeSetParams),
    KW_HOOK(cuGraphExecDestroy),
    KW_HOOK(cuGraphLaunch),
    KW_HOOK(cuGraphLaunch_ptsz),
    {NULL, NULL},
};
