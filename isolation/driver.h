/* What we need of the CUDA driver's public interface, declared by ourselves: nothing here needs NVIDIA's headers. */
#ifndef ALIQUOT_DRIVER_H
#define ALIQUOT_DRIVER_H

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUhandle; /* CUmemGenericAllocationHandle */
typedef struct driver_context *CUcontext;
typedef struct driver_stream *CUstream;
typedef struct driver_event *CUevent;
typedef struct driver_function_handle *CUfunction;
typedef struct driver_module *CUmodule;
typedef struct driver_library *CUlibrary;
typedef struct driver_pool *CUmemoryPool;
typedef struct driver_array *CUarray;
typedef struct driver_mipmap *CUmipmappedArray;
typedef struct driver_graph *CUgraph;
typedef struct driver_node *CUgraphNode;
typedef struct driver_exec *CUgraphExec;
typedef struct driver_external *CUexternalMemory;
typedef struct driver_green_context *CUgreenCtx;
typedef struct { unsigned char bytes[16]; } CUuuid;
typedef struct { unsigned char bytes[64]; } CUipcMemHandle; /* CUmemPoolPtrExportData looks the same */

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_INVALID_IMAGE = 200,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_FILE_NOT_FOUND = 301,
    CUDA_ERROR_INVALID_HANDLE = 400,
    CUDA_ERROR_NOT_FOUND = 500,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_NOT_SUPPORTED = 801,
    CUDA_ERROR_SYSTEM_NOT_READY = 802,
};

enum {
    LOCATION_NONE = 0, /* of managed memory alone */
    LOCATION_DEVICE = 1,
    LOCATION_HOST = 2,
    LOCATION_HOST_NUMA = 3,
    LOCATION_HOST_NUMA_CURRENT = 4,
    LOCATION_LOCALITY_DOMAIN = 6, /* a part of a device, since CUDA 13.4 */
};
enum { ALLOCATION_PINNED = 1, ALLOCATION_MANAGED = 2 };
enum { ATTRIBUTE_POOL_THRESHOLD = 4, ATTRIBUTE_POOL_RESERVED_NOW = 5, ATTRIBUTE_POOL_USED_NOW = 7 };
enum { ATTRIBUTE_POOL_TYPE = 9, ATTRIBUTE_POOL_LOCATION_ID = 11, ATTRIBUTE_POOL_LOCATION_TYPE = 12 };
enum { ATTRIBUTE_GRAPH_RESERVED_NOW = 2 };
enum { LIMIT_STACK = 0, LIMIT_PRINTF = 1, LIMIT_HEAP = 2 };
enum { NODE_CHILD_GRAPH = 4, NODE_MEMORY_ALLOCATION = 10, NODE_MEMORY_FREE = 11, NODE_CONDITIONAL = 13 };
enum { DEVICE_MULTIPROCESSORS = 16, DEVICE_THREADS_A_MULTIPROCESSOR = 39, DEVICE_GENERATION = 75, DEVICE_VARIANT = 76 };
enum { DEVICE_CONCURRENT_MANAGED = 89 };
enum { POINTER_KIND = 2, POINTER_IS_MANAGED = 8, POINTER_DEVICE = 9, POINTER_RANGE_START = 11, POINTER_RANGE_BYTES = 12 };
enum { MEMORY_MAP = 1 };
enum { SHAREABLE_DESCRIPTOR = 1 };
enum { LIBRARY_PRESERVED = 1 };
enum { EVENT_NO_TIMING = 2 };
/* Handles up to here are no objects: default streams. The old one is NULL's, too, where that is not the thread's own. */
enum { OLD_DEFAULT_STREAM = 1, LAST_BUILT_IN_STREAM = 2 };
enum { CAPTURE_RELAXED = 2 };
enum { INSTANTIATE_AUTO_FREE = 1, INSTANTIATE_UPLOAD = 2 };
enum { LOOKUP_PER_THREAD_STREAM = 2 };

typedef struct {
    int type;
    union { int id; struct { unsigned char device, domain; } localized; };
} CUmemLocation;

typedef struct {
    int type, handle_types;
    CUmemLocation location;
    void *windows;
    unsigned char compression, rdma;
    unsigned short usage;
    unsigned char reserved[4];
} CUmemAllocationProp;

typedef struct {
    int type, handle_types;
    CUmemLocation location;
    void *windows;
    size_t most;
    unsigned short usage;
    unsigned char reserved[54];
} CUmemPoolProps;

typedef struct { size_t width, height; int format; unsigned channels; } CUDA_ARRAY_DESCRIPTOR;
typedef struct { size_t width, height, depth; int format; unsigned channels, flags; } CUDA_ARRAY3D_DESCRIPTOR;

/* What a sparse array is mapped to. */
typedef struct {
    int resource_type;
    void *resource;
    int part_type;
    union { unsigned level[8]; struct { unsigned layer; unsigned long long offset, bytes; } tail; } part;
    int operation, handle_type;
    CUhandle handle;
    unsigned long long offset;
    unsigned devices, flags, reserved[2];
} CUarrayMapInfo;

typedef struct {
    int type;
    union { int fd; struct { void *handle; const void *name; } windows; const void *other; } handle;
    unsigned long long size;
    unsigned flags, reserved[16];
} CUDA_EXTERNAL_MEMORY_HANDLE_DESC;

typedef struct {
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared;
    CUstream stream;
    void *attributes;
    unsigned attribute_count;
} CUlaunchConfig;

typedef struct {
    CUfunction function;
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared;
    CUstream stream;
    void **parameters;
} CUDA_LAUNCH_PARAMS;

typedef struct {
    CUmemPoolProps properties;
    const void *access;
    size_t access_count, bytes;
    CUdeviceptr address;
} CUDA_MEM_ALLOC_NODE_PARAMS;

typedef struct {
    unsigned long long flags;
    CUstream upload;
    CUgraphNode failed_node;
    int result;
} CUDA_GRAPH_INSTANTIATE_PARAMS;

/* How a process is put aside, and how it is brought back: on other GPUs, by pairs. What is reserved has to be zero. */
typedef struct { char reserved[64]; } CUcheckpointCheckpointArgs;

typedef struct {
    void *pairs;
    unsigned pair_count;
    char reserved[52];
} CUcheckpointRestoreArgs;

/* Told of the driver. */
CUresult cuInit(unsigned flags);
CUresult cuDeviceGetCount(int *count);
CUresult cuDeviceGet(CUdevice *device, int ordinal);
CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device);
CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device);
CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device);
CUresult cuMemGetInfo_v2(size_t *free, size_t *total);
CUresult cuCtxGetDevice(CUdevice *device);
CUresult cuCtxGetCurrent(CUcontext *context);
CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuCtxPushCurrent_v2(CUcontext context);
CUresult cuCtxPopCurrent_v2(CUcontext *context);
CUresult cuCtxSynchronize(void);
CUresult cuCtxSynchronize_v2(CUcontext context);
CUresult cuGetExportTable(const void **table, const CUuuid *id);
CUresult cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags);
CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status);
CUresult cuGetProcAddress_v2_ptsz(const char *symbol, void **function, int version, uint64_t flags, int *status);

/* Contexts and code. */
CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device);
CUresult cuCtxCreate_v3(CUcontext *context, void *affinity, int count, unsigned flags, CUdevice device);
CUresult cuCtxCreate_v4(CUcontext *context, void *parameters, unsigned flags, CUdevice device);
CUresult cuCtxDestroy(CUcontext context);
CUresult cuCtxDestroy_v2(CUcontext context);
CUresult cuCtxAttach(CUcontext *context, unsigned flags);
CUresult cuCtxDetach(CUcontext context);
CUresult cuCtxSetLimit(int limit, size_t value);
CUresult cuCtxGetLimit(size_t *value, int limit);
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);
CUresult cuDevicePrimaryCtxRelease(CUdevice device);
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device);
CUresult cuDevicePrimaryCtxReset(CUdevice device);
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device);
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active);
CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device);
CUresult cuGreenCtxCreate(CUgreenCtx *context, void *resources, CUdevice device, unsigned flags);
CUresult cuGreenCtxDestroy(CUgreenCtx context);
CUresult cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx context, unsigned flags, int priority);
CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green);
CUresult cuModuleLoad(CUmodule *module, const char *file);
CUresult cuModuleLoadData(CUmodule *module, const void *image);
CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count, int *options, void **values);
CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image);
CUresult cuModuleUnload(CUmodule module);
CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name);
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name);
CUresult cuLibraryLoadData(CUlibrary *library, const void *image, int *jit, void **jit_values, unsigned jit_count,
                           int *options, void **values, unsigned count);
CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *file, int *jit, void **jit_values, unsigned jit_count,
                               int *options, void **values, unsigned count);
CUresult cuLibraryUnload(CUlibrary library);

CUresult cuCheckpointProcessCheckpoint(int process, CUcheckpointCheckpointArgs *how);
CUresult cuCheckpointProcessRestore(int process, CUcheckpointRestoreArgs *how);

/* Memory. */
CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes);
CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned element);
CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned flags);
CUresult cuMemFree_v2(CUdeviceptr address);
CUresult cuMemPrefetchAsync(CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream);
CUresult cuMemPrefetchAsync_ptsz(CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream);
CUresult cuMemPrefetchAsync_v2(CUdeviceptr address, size_t bytes, CUmemLocation place, unsigned flags, CUstream stream);
CUresult cuMemPrefetchAsync_v2_ptsz(CUdeviceptr address, size_t bytes, CUmemLocation place, unsigned flags,
                                    CUstream stream);
CUresult cuMemPrefetchBatchAsync(CUdeviceptr *addresses, size_t *bytes, size_t count, CUmemLocation *place, size_t *from,
                                 size_t places, unsigned long long flags, CUstream stream);
CUresult cuMemPrefetchBatchAsync_ptsz(CUdeviceptr *addresses, size_t *bytes, size_t count, CUmemLocation *place,
                                      size_t *from, size_t places, unsigned long long flags, CUstream stream);
CUresult cuMemDiscardAndPrefetchBatchAsync(CUdeviceptr *addresses, size_t *bytes, size_t count, CUmemLocation *place,
                                           size_t *from, size_t places, unsigned long long flags, CUstream stream);
CUresult cuMemDiscardAndPrefetchBatchAsync_ptsz(CUdeviceptr *addresses, size_t *bytes, size_t count,
                                                CUmemLocation *place, size_t *from, size_t places,
                                                unsigned long long flags, CUstream stream);
CUresult cuMemAdvise(CUdeviceptr address, size_t bytes, int advice, CUdevice device);
CUresult cuMemAdvise_v2(CUdeviceptr address, size_t bytes, int advice, CUmemLocation place);
CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream);
CUresult cuMemAllocAsync_ptsz(CUdeviceptr *address, size_t bytes, CUstream stream);
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream);
CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream);
CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream);
CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream);
CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device);
CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device);
CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location, int type);
CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, int type);
CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties);
CUresult cuMemPoolDestroy(CUmemoryPool pool);
CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep);
CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void *value);
CUresult cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, void *value);
CUresult cuMemPoolExportPointer(CUipcMemHandle *handle, CUdeviceptr address);
CUresult cuMemPoolImportPointer(CUdeviceptr *address, CUmemoryPool pool, CUipcMemHandle *handle);
CUresult cuPointerGetAttribute(void *value, int attribute, CUdeviceptr address);
CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *shape);
CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *shape);
CUresult cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned levels);
CUresult cuArrayDestroy(CUarray array);
CUresult cuMipmappedArrayDestroy(CUmipmappedArray array);
CUresult cuMemCreate(CUhandle *handle, size_t bytes, const CUmemAllocationProp *properties, unsigned long long flags);
CUresult cuMemRelease(CUhandle handle);
CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUhandle handle, unsigned long long flags);
CUresult cuMemUnmap(CUdeviceptr address, size_t bytes);
CUresult cuMemMapArrayAsync(CUarrayMapInfo *maps, unsigned count, CUstream stream);
CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo *maps, unsigned count, CUstream stream);
CUresult cuMulticastBindMem(CUhandle object, size_t at, CUhandle handle, size_t from, size_t bytes,
                            unsigned long long flags);
CUresult cuMulticastBindMem_v2(CUhandle object, CUdevice device, size_t at, CUhandle handle, size_t from, size_t bytes,
                               unsigned long long flags);
CUresult cuMulticastBindAddr(CUhandle object, size_t at, CUdeviceptr address, size_t bytes, unsigned long long flags);
CUresult cuMulticastBindAddr_v2(CUhandle object, CUdevice device, size_t at, CUdeviceptr address, size_t bytes,
                                unsigned long long flags);
CUresult cuMulticastUnbind(CUhandle object, CUdevice device, size_t at, size_t bytes);
CUresult cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wanted,
                             unsigned long long flags);
CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes);
CUresult cuMemRetainAllocationHandle(CUhandle *handle, void *address);
CUresult cuMemExportToShareableHandle(void *shareable, CUhandle handle, int type, unsigned long long flags);
CUresult cuMemImportFromShareableHandle(CUhandle *handle, void *shareable, int type);
CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *properties, CUhandle handle);
CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address);
CUresult cuImportExternalMemory(CUexternalMemory *memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *description);
CUresult cuDestroyExternalMemory(CUexternalMemory memory);
CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address);
CUresult cuIpcOpenMemHandle(CUdeviceptr *address, CUipcMemHandle handle, unsigned flags);
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle handle, unsigned flags);
CUresult cuIpcCloseMemHandle(CUdeviceptr address);

/* Streams, launches, graphs. */
CUresult cuStreamGetCtx(CUstream stream, CUcontext *context);
CUresult cuStreamGetGreenCtx(CUstream stream, CUgreenCtx *context);
CUresult cuStreamCreate(CUstream *stream, unsigned flags);
CUresult cuStreamDestroy(CUstream stream);
CUresult cuStreamDestroy_v2(CUstream stream);
CUresult cuStreamQuery(CUstream stream);
CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph);
CUresult cuStreamBeginCapture(CUstream stream);
CUresult cuStreamBeginCapture_ptsz(CUstream stream);
CUresult cuStreamBeginCapture_v2(CUstream stream, int mode);
CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, int mode);
CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *after, const void *edges,
                                     size_t count, int mode);
CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph, const CUgraphNode *after, const void *edges,
                                          size_t count, int mode);
CUresult cuStreamSynchronize(CUstream stream);
CUresult cuStreamSynchronize_ptsz(CUstream stream);
CUresult cuStreamIsCapturing(CUstream stream, int *status);
CUresult cuStreamIsCapturing_ptsz(CUstream stream, int *status);
CUresult cuThreadExchangeStreamCaptureMode(int *mode);
CUresult cuEventCreate(CUevent *event, unsigned flags);
CUresult cuEventRecord(CUevent event, CUstream stream);
CUresult cuEventRecord_ptsz(CUevent event, CUstream stream);
CUresult cuEventQuery(CUevent event);
CUresult cuEventSynchronize(CUevent event);
CUresult cuEventDestroy_v2(CUevent event);

#define LAUNCH_SHAPE \
    unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z
CUresult cuLaunchKernel(CUfunction f, LAUNCH_SHAPE, unsigned shared, CUstream stream, void **parameters, void **extra);
CUresult cuLaunchKernel_ptsz(CUfunction f, LAUNCH_SHAPE, unsigned shared, CUstream stream, void **parameters,
                             void **extra);
CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **parameters, void **extra);
CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction f, void **parameters, void **extra);
CUresult cuLaunchCooperativeKernel(CUfunction f, LAUNCH_SHAPE, unsigned shared, CUstream stream, void **parameters);
CUresult cuLaunchCooperativeKernel_ptsz(CUfunction f, LAUNCH_SHAPE, unsigned shared, CUstream stream,
                                        void **parameters);
CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launches, unsigned count, unsigned flags);
CUresult cuLaunch(CUfunction f);
CUresult cuLaunchGrid(CUfunction f, int width, int height);
CUresult cuLaunchGridAsync(CUfunction f, int width, int height, CUstream stream);
CUresult cuGraphCreate(CUgraph *graph, unsigned flags);
CUresult cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
                              const void *parameters);
CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
                                CUDA_MEM_ALLOC_NODE_PARAMS *parameters);
CUresult cuGraphAddMemFreeNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *after, size_t count,
                               CUdeviceptr address);
CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count);
CUresult cuGraphNodeGetType(CUgraphNode node, int *type);
CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *parameters);
CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *graph);
CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *failed, char *log, size_t size);
CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *failed, char *log, size_t size);
CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags);
CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *parameters);
CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph,
                                           CUDA_GRAPH_INSTANTIATE_PARAMS *parameters);
CUresult cuGraphExecDestroy(CUgraphExec exec);
CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream);
CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream);
CUresult cuGraphUpload(CUgraphExec exec, CUstream stream);
CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream);
CUresult cuDeviceGraphMemTrim(CUdevice device);
CUresult cuDeviceGetGraphMemAttribute(CUdevice device, int attribute, void *value);

#endif
