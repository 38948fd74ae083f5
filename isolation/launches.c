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

/* The stream that is paced is the driver's, too: it gets a copy of what was read. */
EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **parameters, void **extra) {
    if (!config) return REAL(cuLaunchKernelEx)(config, f, parameters, extra);
    const CUlaunchConfig told = *config;
    int gpu = pace_before(told.stream, false);
    CUresult result = REAL(cuLaunchKernelEx)(&told, f, parameters, extra);
    pace_after(gpu, told.stream, false);
    return result;
}

EXPORT CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction f, void **parameters, void **extra) {
    if (!config) return REAL(cuLaunchKernelEx_ptsz)(config, f, parameters, extra);
    const CUlaunchConfig told = *config;
    int gpu = pace_before(told.stream, true);
    CUresult result = REAL(cuLaunchKernelEx_ptsz)(&told, f, parameters, extra);
    pace_after(gpu, told.stream, true);
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
    if (!launches || count > MOST_GPUS) return REAL(cuLaunchCooperativeKernelMultiDevice)(launches, count, flags);
    CUDA_LAUNCH_PARAMS told[MOST_GPUS];
    int paced[MOST_GPUS];
    for (unsigned i = 0; i < count; i++) told[i] = launches[i];
    for (unsigned i = 0; i < count; i++) paced[i] = pace_before(told[i].stream, false);
    CUresult result = REAL(cuLaunchCooperativeKernelMultiDevice)(told, count, flags);
    for (unsigned i = 0; i < count; i++) pace_after(paced[i], told[i].stream, false);
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
