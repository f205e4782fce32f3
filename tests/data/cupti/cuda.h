/* The declarations of cuda.h that CUPTI's headers need; no record of the test contains one of them by value. */
#pragma once
#include <stddef.h>
#include <stdint.h>

typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUfunc_st *CUfunction;
typedef struct CUmod_st *CUmodule;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;
typedef int CUdevice;
typedef int CUdevice_attribute;
typedef int CUgraphNodeType;
typedef int CUstreamAttrID;
typedef struct {
    char bytes[64];
} CUstreamAttrValue;
typedef struct {
    void *base;
    size_t bytes;
    float ratio;
    int hit, miss;
} CUaccessPolicyWindow;
typedef struct {
    char bytes[16];
} CUuuid;
