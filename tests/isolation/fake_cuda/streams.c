/* Streams, events and launches of the fake driver. All streams of a process are one queue. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "fake.h"
#include "world.h"

struct driver_stream {
    CUcontext context;
    CUgreenCtx green; /* of which it is, or NULL */
    CUgraph captured; /* into which it is, or NULL */
    bool ended;
};

struct driver_event {
    uint64_t target;
    int gpu;
    const void *context;
};

CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
    (void)flags;
    *stream = malloc(sizeof **stream);
    **stream = (struct driver_stream){.context = (CUcontext)(uintptr_t)fake_owner()};
    return CUDA_SUCCESS;
}

CUresult cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx context, unsigned flags, int priority) {
    (void)flags, (void)priority;
    *stream = malloc(sizeof **stream);
    **stream = (struct driver_stream){.green = context};
    if (getenv("FAKE_CUDA_GREEN_IS_PRIMARY")) return fake_primary_of(context, &(*stream)->context);
    return cuCtxFromGreenCtx(&(*stream)->context, context);
}

/* A default stream is no object. */
static bool is_made(CUstream stream) {
    return (uintptr_t)stream > LAST_BUILT_IN_STREAM;
}

/* What it was given still runs. It stays in memory, so that whoever uses it once more is found out. */
CUresult cuStreamDestroy_v2(CUstream stream) {
    if (!is_made(stream)) return CUDA_ERROR_INVALID_HANDLE;
    stream->ended = true;
    return CUDA_SUCCESS;
}

CUgraph fake_captured(CUstream stream) {
    return is_made(stream) ? stream->captured : NULL;
}

static bool captures(CUstream stream) {
    return fake_captured(stream) != NULL;
}

/* The GPU that it works on: of a stream that was made, whichever context is current. -1: it has none. */
static int gpu_of(CUstream stream) {
    return is_made(stream) ? fake_gpu_of(stream->context) : fake_gpu();
}

int fake_gpu_of_stream(CUstream stream) {
    return gpu_of(stream);
}

static void must_live(CUstream stream) {
    if (is_made(stream) && (stream->ended || fake_ended(stream->context))) abort();
}

CUresult cuStreamQuery(CUstream stream) {
    must_live(stream);
    if (captures(stream)) abort(); /* it would spoil the capture */
    int gpu = gpu_of(stream);
    if (gpu < 0) return CUDA_ERROR_INVALID_CONTEXT;
    return world_done(gpu) >= world_submitted(gpu) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

/* A capture takes up launches and does nothing with them; allocations become nodes. */
CUresult cuStreamBeginCapture_v2(CUstream stream, int mode) {
    (void)mode;
    return cuGraphCreate(&stream->captured, 0);
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
    *graph = stream->captured;
    stream->captured = NULL;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext *context) {
    *context = is_made(stream) ? stream->context : (CUcontext)(uintptr_t)fake_owner();
    return CUDA_SUCCESS;
}

CUresult cuStreamGetGreenCtx(CUstream stream, CUgreenCtx *context) {
    must_live(stream);
    *context = is_made(stream) ? stream->green : NULL;
    return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize(CUstream stream) {
    if (gpu_of(stream) < 0) return CUDA_ERROR_INVALID_CONTEXT;
    world_wait(gpu_of(stream), world_submitted(gpu_of(stream)));
    fake_pools_settle();
    return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream stream, int *status) {
    must_live(stream);
    *status = captures(stream);
    return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing_ptsz(CUstream stream, int *status) {
    return cuStreamIsCapturing(stream, status);
}

CUresult cuThreadExchangeStreamCaptureMode(int *mode) {
    (void)mode;
    return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *event, unsigned flags) {
    (void)flags;
    *event = calloc(1, sizeof **event);
    (*event)->context = fake_owner();
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event) {
    free(event);
    return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
    must_live(stream);
    if (gpu_of(stream) < 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (event->context != (is_made(stream) ? stream->context : fake_owner())) return CUDA_ERROR_INVALID_HANDLE;
    event->gpu = gpu_of(stream);
    event->target = world_submitted(event->gpu);
    return CUDA_SUCCESS;
}

CUresult cuEventRecord_ptsz(CUevent event, CUstream stream) {
    return cuEventRecord(event, stream);
}

CUresult cuEventQuery(CUevent event) {
    return world_done(event->gpu) >= event->target ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent event) {
    world_wait(event->gpu, event->target);
    return CUDA_SUCCESS;
}

/* As a kernel of a library (cuKernel…) does, which is no context's own: it runs in the stream's. */
static CUresult run_for(uint64_t ns, CUstream stream) {
    must_live(stream);
    if (gpu_of(stream) < 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (!captures(stream)) world_submit(gpu_of(stream), ns);
    return CUDA_SUCCESS;
}

static CUresult run(uint64_t microseconds, CUstream stream) {
    return run_for(microseconds * 1000, stream);
}

/* A function of a program that runs on real GPUs too (tests/gpu): its first parameter is how many rounds it goes, and a
 * round takes this GPU a nanosecond. */
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    if (strcmp(name, "work") != 0) return CUDA_ERROR_NOT_FOUND;
    *function = (CUfunction)(uintptr_t)module;
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction f, LAUNCH_SHAPE, unsigned shared, CUstream stream, void **parameters, void **extra) {
    (void)grid_y, (void)grid_z, (void)block_x, (void)block_y, (void)block_z, (void)shared, (void)extra;
    return f && parameters ? run_for(*(const uint64_t *)parameters[0], stream) : run(grid_x, stream);
}

CUresult cuLaunchKernel_ptsz(CUfunction f, LAUNCH_SHAPE, unsigned shared, CUstream stream, void **parameters,
                             void **extra) {
    return cuLaunchKernel(f, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, parameters, extra);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **parameters, void **extra) {
    (void)f, (void)parameters, (void)extra;
    unsigned microseconds = config->grid_x;
    SPOIL(config->grid_x);
    return run(microseconds, config->stream);
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction f, void **parameters, void **extra) {
    return cuLaunchKernelEx(config, f, parameters, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction f, LAUNCH_SHAPE, unsigned shared, CUstream stream, void **parameters) {
    return cuLaunchKernel(f, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, parameters, NULL);
}

CUresult cuLaunchCooperativeKernel_ptsz(CUfunction f, LAUNCH_SHAPE, unsigned shared, CUstream stream,
                                        void **parameters) {
    return cuLaunchKernel(f, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, parameters, NULL);
}

CUresult cuLaunchGrid(CUfunction f, int width, int height) {
    (void)f, (void)height;
    return run((uint64_t)width, NULL);
}

CUresult cuLaunchGridAsync(CUfunction f, int width, int height, CUstream stream) {
    (void)f, (void)height;
    return run((uint64_t)width, stream);
}

/* Of a shape that was told before: a millisecond. */
CUresult cuLaunch(CUfunction f) {
    (void)f;
    return run(1000, NULL);
}

CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launches, unsigned count, unsigned flags) {
    CUresult result = CUDA_SUCCESS;
    (void)flags;
    for (unsigned i = 0; !result && i < count; i++) {
        result = run(launches[i].grid_x, launches[i].stream);
        SPOIL(launches[i].grid_x);
    }
    return result;
}
