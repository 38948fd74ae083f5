/* Every way to start work on the GPU, paced. */
#include "limits.h"
#include "pace.h"
#include "table.h"

#define SHAPE grid_x, grid_y, grid_z, block_x, block_y, block_z

EXPORT CUresult cuLaunchKernel(CUfunction f, LAUNCH_SHAPE, unsigned shared, CUstream stream, void **parameters,
                               void **extra) {
    int gpu = pace_before(stream, false);
    CUresult result = REAL(cuLaunchKernel)(f, SHAPE, shared, stream, parameters, extra);
    pace_after(gpu, stream, false);
    return result;
}

EXPORT CUresult cuLaunchKernel_ptsz(CUfunction f, LAUNCH_SHAPE, unsigned shared, CUstream stream, void **parameters,
                                    void **extra) {
    int gpu = pace_before(stream, true);
    CUresult result = REAL(cuLaunchKernel_ptsz)(f, SHAPE, shared, stream, parameters, extra);
    pace_after(gpu, stream, true);
    return result;
}

EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **parameters, void **extra) {
    CUstream stream = config ? config->stream : NULL;
    int gpu = pace_before(stream, false);
    CUresult result = REAL(cuLaunchKernelEx)(config, f, parameters, extra);
    pace_after(gpu, stream, false);
    return result;
}

EXPORT CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction f, void **parameters, void **extra) {
    CUstream stream = config ? config->stream : NULL;
    int gpu = pace_before(stream, true);
    CUresult result = REAL(cuLaunchKernelEx_ptsz)(config, f, parameters, extra);
    pace_after(gpu, stream, true);
    return result;
}

EXPORT CUresult cuLaunchCooperativeKernel(CUfunction f, LAUNCH_SHAPE, unsigned shared, CUstream stream,
                                          void **parameters) {
    int gpu = pace_before(stream, false);
    CUresult result = REAL(cuLaunchCooperativeKernel)(f, SHAPE, shared, stream, parameters);
    pace_after(gpu, stream, false);
    return result;
}

EXPORT CUresult cuLaunchCooperativeKernel_ptsz(CUfunction f, LAUNCH_SHAPE, unsigned shared, CUstream stream,
                                               void **parameters) {
    int gpu = pace_before(stream, true);
    CUresult result = REAL(cuLaunchCooperativeKernel_ptsz)(f, SHAPE, shared, stream, parameters);
    pace_after(gpu, stream, true);
    return result;
}

/* All or none: kernels of several GPUs wait for each other, so none may be held back while another runs. Each has a GPU
 * of its own. */
EXPORT CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launches, unsigned count, unsigned flags) {
    int paced[MOST_GPUS];
    unsigned told = launches && count <= MOST_GPUS ? count : 0;
    for (unsigned i = 0; i < told; i++) paced[i] = pace_before(launches[i].stream, false);
    CUresult result = REAL(cuLaunchCooperativeKernelMultiDevice)(launches, count, flags);
    for (unsigned i = 0; i < told; i++) pace_after(paced[i], launches[i].stream, false);
    return result;
}

EXPORT CUresult cuLaunch(CUfunction f) {
    int gpu = pace_before(NULL, false);
    CUresult result = REAL(cuLaunch)(f);
    pace_after(gpu, NULL, false);
    return result;
}

EXPORT CUresult cuLaunchGrid(CUfunction f, int width, int height) {
    int gpu = pace_before(NULL, false);
    CUresult result = REAL(cuLaunchGrid)(f, width, height);
    pace_after(gpu, NULL, false);
    return result;
}

EXPORT CUresult cuLaunchGridAsync(CUfunction f, int width, int height, CUstream stream) {
    int gpu = pace_before(stream, false);
    CUresult result = REAL(cuLaunchGridAsync)(f, width, height, stream);
    pace_after(gpu, stream, false);
    return result;
}
