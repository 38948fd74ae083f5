/* Contexts. Each takes memory of its own (hundreds of MiB on a real GPU): how much, the agent measures once for each
 * GPU and writes into the limits. With a context goes whatever was made in it. */
#include "contexts.h"

#include <pthread.h>

#include "devices.h"
#include "holdings.h"
#include "pace.h"
#include "release.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t retained[MOST_GPUS];
static uint64_t primary_charge[MOST_GPUS];

void contexts_lock(void) {
    pthread_mutex_lock(&lock);
}

void contexts_unlock(void) {
    pthread_mutex_unlock(&lock);
}

static CUresult create_locked(int index, CUcontext *context, void *with, int count, unsigned flags, CUdevice device,
                              int gpu) {
    uint64_t bytes = TO_GRANULES(limits->gpu[gpu].context);
    if (!charge(gpu, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result;
    if (index == F_cuCtxCreate_v2)
        result = REAL(cuCtxCreate_v2)(context, flags, device);
    else if (index == F_cuCtxCreate_v3)
        result = REAL(cuCtxCreate_v3)(context, with, count, flags, device);
    else
        result = REAL(cuCtxCreate_v4)(context, with, flags, device);
    struct holding holding = {.kind = CONTEXT, .record = {.bytes = bytes, .gpu = gpu}};
    if (result == CUDA_SUCCESS) {
        holding.value = (uintptr_t)*context;
        if (holdings_add(holding)) return result;
        REAL(cuCtxDestroy_v2)(*context);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    account_release(gpu, bytes);
    return result;
}

static CUresult create(int index, CUcontext *context, void *with, int count, unsigned flags, CUdevice device) {
    int gpu = gpu_of_device(device);
    if (gpu < 0) return device_refused(device);
    pthread_mutex_lock(&lock);
    CUresult result = create_locked(index, context, with, count, flags, device, gpu);
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORT CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device) {
    CUcontext made = NULL;
    return ANSWERED(context, made, create(F_cuCtxCreate_v2, &made, NULL, 0, flags, device));
}

EXPORT CUresult cuCtxCreate_v3(CUcontext *context, void *affinity, int count, unsigned flags, CUdevice device) {
    CUcontext made = NULL;
    return ANSWERED(context, made, create(F_cuCtxCreate_v3, &made, affinity, count, flags, device));
}

EXPORT CUresult cuCtxCreate_v4(CUcontext *context, void *parameters, unsigned flags, CUdevice device) {
    CUcontext made = NULL;
    return ANSWERED(context, made, create(F_cuCtxCreate_v4, &made, parameters, 0, flags, device));
}

static void everything_gone(uint64_t context) {
    struct holding holding;
    while (context && holdings_take_of_context(context, &holding)) release_holding(&holding);
}

static void gone(CUcontext context) {
    struct holding holding;
    if (!holdings_take(CONTEXT, (uintptr_t)context, &holding)) return;
    everything_gone((uintptr_t)context);
    account_release(holding.record.gpu, holding.record.bytes);
}

static CUresult destroy(int index, CUcontext context) {
    /* One step: else another thread's new context in the same place would lose what is charged for it. */
    pthread_mutex_lock(&lock);
    pace_ends(context, NULL);
    CUresult result = REAL_AS(index, cuCtxDestroy_v2)(context);
    pace_ended(context, result == CUDA_SUCCESS);
    if (result == CUDA_SUCCESS) gone(context);
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORT CUresult cuCtxDestroy(CUcontext context) {
    return destroy(F_cuCtxDestroy, context);
}

EXPORT CUresult cuCtxDestroy_v2(CUcontext context) {
    return destroy(F_cuCtxDestroy_v2, context);
}

static void attach_once(struct record *record, void *nothing) {
    (void)nothing;
    record->references++;
}

static CUresult attach(CUcontext *context, unsigned flags) {
    pthread_mutex_lock(&lock);
    CUresult result = REAL(cuCtxAttach)(context, flags);
    if (result == CUDA_SUCCESS) holdings_change(CONTEXT, (uintptr_t)*context, attach_once, NULL);
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORT CUresult cuCtxAttach(CUcontext *context, unsigned flags) {
    CUcontext attached = NULL;
    return ANSWERED(context, attached, attach(&attached, flags));
}

static void detach_once(struct record *record, void *nothing) {
    (void)nothing;
    record->references--;
}

/* The last detaching of a context that was made is its end, as cuCtxDestroy. */
EXPORT CUresult cuCtxDetach(CUcontext context) {
    struct holding known;
    pthread_mutex_lock(&lock);
    bool ours = holdings_find(CONTEXT, (uintptr_t)context, &known), last = ours && !known.record.references;
    if (last) pace_ends(context, NULL);
    CUresult result = REAL(cuCtxDetach)(context);
    if (last) pace_ended(context, result == CUDA_SUCCESS);
    if (result == CUDA_SUCCESS && last)
        gone(context);
    else if (result == CUDA_SUCCESS && ours)
        holdings_change(CONTEXT, (uintptr_t)context, detach_once, NULL);
    pthread_mutex_unlock(&lock);
    return result;
}

static CUresult retain(CUcontext *context, CUdevice device, int gpu) {
    uint64_t bytes = retained[gpu] ? 0 : TO_GRANULES(limits->gpu[gpu].context);
    if (!charge(gpu, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = REAL(cuDevicePrimaryCtxRetain)(context, device);
    if (result != CUDA_SUCCESS) {
        account_release(gpu, bytes);
        return result;
    }
    if (bytes) primary_charge[gpu] = bytes;
    retained[gpu]++;
    return result;
}

static CUresult retain_primary(CUcontext *context, CUdevice device) {
    int gpu = gpu_of_device(device);
    if (gpu < 0) return device_refused(device);
    pthread_mutex_lock(&lock);
    CUresult result = retain(context, device, gpu);
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    CUcontext retained_one = NULL;
    return ANSWERED(context, retained_one, retain_primary(&retained_one, device));
}

/* The primary context as the driver knows it; it can only be had by retaining it once more. */
static uint64_t primary(CUdevice device) {
    CUcontext context = NULL;
    if (REAL(cuDevicePrimaryCtxRetain)(&context, device) != CUDA_SUCCESS) return 0;
    REAL(cuDevicePrimaryCtxRelease_v2)(device);
    return (uintptr_t)context;
}

static CUresult release_locked(int index, CUdevice device, int gpu) {
    uint64_t context = retained[gpu] == 1 ? primary(device) : 0;
    if (context) pace_ends((CUcontext)(uintptr_t)context, NULL);
    CUresult result = REAL_AS(index, cuDevicePrimaryCtxRelease_v2)(device);
    if (context) pace_ended((CUcontext)(uintptr_t)context, result == CUDA_SUCCESS);
    if (result == CUDA_SUCCESS && retained[gpu] && --retained[gpu] == 0) {
        everything_gone(context);
        account_release(gpu, primary_charge[gpu]);
        primary_charge[gpu] = 0;
    }
    return result;
}

static CUresult release(int index, CUdevice device) {
    int gpu = gpu_of_device(device);
    if (gpu < 0) return REAL_AS(index, cuDevicePrimaryCtxRelease_v2)(device);
    pthread_mutex_lock(&lock);
    CUresult result = release_locked(index, device, gpu);
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
    return release(F_cuDevicePrimaryCtxRelease, device);
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    return release(F_cuDevicePrimaryCtxRelease_v2, device);
}

/* A reset frees what the context holds; the context itself stays charged, for whoever retained it may use it again. */
static CUresult reset(int index, CUdevice device) {
    int gpu = gpu_of_device(device);
    if (gpu < 0) return REAL_AS(index, cuDevicePrimaryCtxReset_v2)(device);
    pthread_mutex_lock(&lock);
    uint64_t context = retained[gpu] ? primary(device) : 0;
    if (context) pace_ends((CUcontext)(uintptr_t)context, NULL);
    CUresult result = REAL_AS(index, cuDevicePrimaryCtxReset_v2)(device);
    if (context) pace_ended((CUcontext)(uintptr_t)context, result == CUDA_SUCCESS);
    if (result == CUDA_SUCCESS) everything_gone(context);
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice device) {
    return reset(F_cuDevicePrimaryCtxReset, device);
}

EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
    return reset(F_cuDevicePrimaryCtxReset_v2, device);
}

/* A green context is a part of the primary one, and holds it: so do we, as long as it lives. */
static CUresult create_green(CUgreenCtx *context, void *resources, CUdevice device, unsigned flags, int gpu) {
    CUcontext primary_context;
    CUresult result = retain(&primary_context, device, gpu);
    if (result != CUDA_SUCCESS) return result;
    result = REAL(cuGreenCtxCreate)(context, resources, device, flags);
    struct holding holding = {.kind = GREEN_CONTEXT, .record = {.extra = (uint64_t)device, .gpu = gpu}};
    if (result == CUDA_SUCCESS) {
        holding.value = (uintptr_t)*context;
        if (holdings_add(holding)) return result;
        REAL(cuGreenCtxDestroy)(*context);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    release_locked(F_cuDevicePrimaryCtxRelease_v2, device, gpu);
    return result;
}

static CUresult take_green(CUgreenCtx *context, void *resources, CUdevice device, unsigned flags) {
    int gpu = gpu_of_device(device);
    if (gpu < 0) return device_refused(device);
    pthread_mutex_lock(&lock);
    CUresult result = create_green(context, resources, device, flags, gpu);
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORT CUresult cuGreenCtxCreate(CUgreenCtx *context, void *resources, CUdevice device, unsigned flags) {
    CUgreenCtx made = NULL;
    return ANSWERED(context, made, take_green(&made, resources, device, flags));
}

static CUresult destroy_green(CUgreenCtx context, bool ours) {
    CUcontext part = NULL;
    if (ours) REAL(cuCtxFromGreenCtx)(&part, context);
    pace_ends(part, context);
    CUresult result = REAL(cuGreenCtxDestroy)(context);
    pace_ended(part, false); /* of its events no driver says that they go with it */
    return result;
}

EXPORT CUresult cuGreenCtxDestroy(CUgreenCtx context) {
    struct holding holding;
    bool ours = holdings_take(GREEN_CONTEXT, (uintptr_t)context, &holding);
    pace_await_places();
    pthread_mutex_lock(&lock);
    CUresult result = destroy_green(context, ours);
    if (ours && result != CUDA_SUCCESS)
        holdings_add(holding);
    else if (ours)
        release_locked(F_cuDevicePrimaryCtxRelease_v2, (CUdevice)holding.record.extra, holding.record.gpu);
    pthread_mutex_unlock(&lock);
    return result;
}

static void forget(void) {
    pthread_mutex_init(&lock, NULL);
    for (int gpu = 0; gpu < MOST_GPUS; gpu++) retained[gpu] = 0, primary_charge[gpu] = 0;
}

__attribute__((constructor)) static void prepare(void) {
    pthread_atfork(NULL, NULL, forget);
}
