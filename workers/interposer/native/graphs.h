/* Graphs that the application instantiated: their kernel nodes, counted at each launch. */
#ifndef KW_GRAPHS_H
#define KW_GRAPHS_H

#include "driver.h"

/* Remembers what `exec` was instantiated from, or updated to. */
void kw_graph_instantiated(CUgraphExec exec, CUgraph graph);

/* Follows the application's changes of `exec`. */
void kw_graph_node_set(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *params);
void kw_graph_changed(CUgraphExec exec);
void kw_graph_destroyed(CUgraphExec exec);

/* Launches `exec` in the caller's place; 0 if the caller is to launch it as it is. */
int kw_graph_launched(CUgraphExec exec, CUstream stream, CUresult *result);

/* Forgets everything, in a process that was forked. */
void kw_graphs_forget(void);

#endif
