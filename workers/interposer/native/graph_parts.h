/* Runs a graph in another form: with events around its kernels, or in parts. */
#ifndef KW_GRAPH_PARTS_H
#define KW_GRAPH_PARTS_H

#include "driver.h"
#include "kernels.h"

typedef struct {
    CUgraphNode handle; /* in the clone; NULL in a child graph */
    kw_shape *shape;
} kw_graph_node;

typedef struct kw_graph {
    CUgraphExec exec;
    CUgraph clone; /* NULL if it cannot be cloned */
    kw_graph_node *nodes;
    unsigned count, capacity;
    unsigned timed_left; /* launches that are still to be timed */
    CUgraphExec timed;   /* the graph with events around its kernels */
    CUevent (*events)[2]; /* of each node */
    struct kw_graph *next;
} kw_graph;

/* The nodes of a graph, for the caller to free; NULL if there are none, or too many. */
CUgraphNode *kw_graph_nodes(CUgraph graph, size_t *count);

/* Reads a kernel node; 0 if that fails. */
int kw_graph_node_launch(CUgraphNode node, kw_launch *launch);

/* Launches the graph with events around its kernels, and waits; 0 if nothing was launched. */
int kw_graph_launch_timed(kw_graph *graph, CUstream stream, CUresult *result);

/* Frees the events and the graph that holds them. */
void kw_graph_untime(kw_graph *graph);

/* Launches the graph in parts, and observes the kernels that are wanted; 0 if nothing ran. */
int kw_graph_launch_parts(kw_graph *graph, CUstream stream, CUresult *result);

#endif
