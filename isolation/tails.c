#include "tails.h"

#include <pthread.h>

#include "devices.h"
#include "table.h"

#define EVERY_CONTEXT ((CUcontext)UINTPTR_MAX)
#define THREAD_DEFAULT ((CUstream)(uintptr_t)2)

bool stream_is_thread_s(CUstream stream, bool per_thread) {
    return stream == THREAD_DEFAULT || (per_thread && !stream);
}

/* Whose own default stream it is; 0 if it is another stream. */
static uintptr_t thread_of(CUstream stream, bool per_thread) {
    return stream_is_thread_s(stream, per_thread) ? (uintptr_t)pthread_self() : 0;
}

static CUcontext context_here(void) {
    CUcontext here = NULL;
    REAL(cuCtxGetCurrent)(&here);
    return here;
}

/* A default stream is its context's. */
static bool is_of(const struct tail *tail, CUstream stream, CUcontext context, uintptr_t thread) {
    return tail->thread == thread && (thread || tail->stream == stream_by_one_name(stream)) &&
           (context == EVERY_CONTEXT || tail->context == context);
}

struct tail *tails_find(struct tails *tails, CUstream stream, bool per_thread) {
    uintptr_t thread = thread_of(stream, per_thread);
    /* A stream that was made is one by its handle alone: the driver need not be asked whose it is. */
    CUcontext here = thread || !stream_is_made(stream) ? context_here() : EVERY_CONTEXT;
    for (int i = 0; i < MOST_TAILS; i++)
        if (tails->of[i].launches && is_of(&tails->of[i], stream, here, thread)) return &tails->of[i];
    return NULL;
}

static struct tail *vacant(struct tails *tails) {
    for (int i = 0; i < MOST_TAILS; i++)
        if (!tails->of[i].launches) return &tails->of[i];
    return NULL;
}

bool tails_are_full(const struct tails *tails) {
    for (int i = 0; i < MOST_TAILS; i++)
        if (!tails->of[i].launches) return false;
    return true;
}

bool event_here(CUevent *event, CUcontext *context) {
    CUcontext here = context_here();
    if (*event && *context == here) return true;
    if (*event) REAL(cuEventDestroy_v2)(*event);
    *context = here;
    if (REAL(cuEventCreate)(event, EVENT_NO_TIMING) != CUDA_SUCCESS) *event = NULL;
    return *event != NULL;
}

static void begin(struct tail *tail, CUstream stream, bool per_thread) {
    bool entered = context_enter(stream);
    tail->thread = thread_of(stream, per_thread);
    if (tail->thread) event_here(&tail->event, &tail->event_context);
    tail->stream = stream_by_one_name(stream);
    tail->context = context_here();
    if (entered) context_leave();
}

bool stream_is_capturing(CUstream stream, bool per_thread) {
    int status = 0;
    CUresult told = per_thread ? REAL(cuStreamIsCapturing_ptsz)(stream, &status) : REAL(cuStreamIsCapturing)(stream, &status);
    return told == CUDA_SUCCESS && status != 0;
}

bool tails_add(struct tails *tails, CUstream stream, bool per_thread) {
    struct tail *tail = tails_find(tails, stream, per_thread);
    if (!tail) {
        tail = vacant(tails);
        if (!tail) return false;
        begin(tail, stream, per_thread);
    }
    tail->launches++;
    if (tail->thread && tail->event && !stream_is_capturing(NULL, true)) REAL(cuEventRecord_ptsz)(tail->event, NULL);
    return true;
}

bool event_behind(CUstream stream, bool per_thread, CUevent *event, CUcontext *context) {
    bool entered = context_enter(stream);
    bool recorded = event_here(event, context) && !stream_is_capturing(stream, per_thread) &&
                    (per_thread ? REAL(cuEventRecord_ptsz) : REAL(cuEventRecord))(*event, stream) == CUDA_SUCCESS;
    if (entered) context_leave();
    return recorded;
}

/* In exchange for another one, which may be none. */
static bool give_event(struct tail *tail, CUevent *event, CUcontext *context) {
    CUevent given = tail->event;
    CUcontext of = tail->event_context;
    if (!given) return false;
    tail->event = *event;
    tail->event_context = *context;
    *event = given;
    *context = of;
    return true;
}

bool event_behind_tail(struct tail *tail, CUevent *event, CUcontext *context) {
    if (tail->thread) return give_event(tail, event, context);
    if (REAL(cuCtxPushCurrent_v2)(tail->context) != CUDA_SUCCESS) return false;
    bool recorded = event_behind(tail->stream, false, event, context);
    context_leave();
    return recorded;
}

static _Atomic bool captures;

void captures_begin(void) {
    captures = true;
}

bool stream_is_captured(CUstream stream, bool per_thread) {
    return captures && stream_is_capturing(stream, per_thread);
}

static CUresult ask(const struct tail *tail) {
    int status = 0;
    if (tail->thread) return tail->event ? REAL(cuEventQuery)(tail->event) : CUDA_ERROR_INVALID_HANDLE;
    CUresult told = REAL(cuStreamIsCapturing)(tail->stream, &status);
    if (told != CUDA_SUCCESS || status) return CUDA_ERROR_NOT_SUPPORTED;
    return REAL(cuStreamQuery)(tail->stream);
}

enum tail_state tail_ask(const struct tail *tail) {
    CUcontext before, here = context_here();
    int mode = CAPTURE_RELAXED;
    if (here != tail->context && REAL(cuCtxPushCurrent_v2)(tail->context) != CUDA_SUCCESS) return TAIL_UNKNOWN;
    REAL(cuThreadExchangeStreamCaptureMode)(&mode);
    CUresult result = ask(tail);
    REAL(cuThreadExchangeStreamCaptureMode)(&mode);
    if (here != tail->context) REAL(cuCtxPopCurrent_v2)(&before);
    return result == CUDA_SUCCESS ? TAIL_DONE : result == CUDA_ERROR_NOT_READY ? TAIL_WORKING : TAIL_UNKNOWN;
}

void tails_spare(struct tails *tails, CUcontext context) {
    for (int i = 0; i < MOST_TAILS; i++) {
        struct tail *tail = &tails->of[i];
        if (tail->launches || !tail->event || tail->event_context != context) continue;
        REAL(cuEventDestroy_v2)(tail->event);
        tail->event = NULL;
    }
}

uint64_t tails_drop(struct tails *tails, CUcontext context) {
    uint64_t launches = 0;
    for (int i = 0; i < MOST_TAILS; i++) {
        struct tail *tail = &tails->of[i];
        if (tail->event_context == context) tail->event = NULL; /* it went with the context */
        if (tail->context != context) continue;
        launches += tail->launches;
        tail->launches = 0;
    }
    return launches;
}
