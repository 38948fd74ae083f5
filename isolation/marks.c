#include "marks.h"

#include "table.h"
#include "tails.h"

/* A query would spoil a capture that is under way, if this thread did not say that it means no part of it. */
bool mark_is_reached(const struct mark *mark, CUcontext ending) {
    if (!mark->event) return true;
    if (mark->context == ending) return false;
    int mode = CAPTURE_RELAXED;
    REAL(cuThreadExchangeStreamCaptureMode)(&mode);
    CUresult result = REAL(cuEventQuery)(mark->event);
    REAL(cuThreadExchangeStreamCaptureMode)(&mode);
    return result != CUDA_ERROR_NOT_READY;
}

bool mark_put(struct mark *mark, CUcontext ending, CUstream stream, bool per_thread) {
    if (mark->event && mark->context == ending) mark->event = NULL; /* it goes with its context */
    return event_behind(stream, per_thread, &mark->event, &mark->context);
}
