/* Conditional nodes, as a program asks for one and is given the graph that is its body. */
#ifndef FAKE_CUDA_CONDITIONAL_H
#define FAKE_CUDA_CONDITIONAL_H

#include "driver.h"

typedef struct {
    int type, reserved[3];
    union {
        struct { unsigned long long handle; int kind; unsigned size; CUgraph *bodies; CUcontext context; } conditional;
        long long size[29];
    };
    long long reserved_too;
} CUgraphNodeParams;

CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
                        CUgraphNodeParams *parameters);

#endif
