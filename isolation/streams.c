/* Streams that end, or take part in a capture: what was given to them is noted first, for afterwards they can't be asked. */
#include "devices.h"
#include "managed.h"
#include "pace.h"
#include "table.h"
#include "tails.h"

static CUresult destroy(CUstream stream, CUresult (*end)(CUstream stream)) {
    if (!stream_is_made(stream)) return end(stream); /* the driver refuses to end it, and it goes on */
    pace_let_go(stream, false);
    return managed_end_stream(stream, end);
}

EXPORT CUresult cuStreamDestroy(CUstream stream) {
    return destroy(stream, REAL(cuStreamDestroy));
}

EXPORT CUresult cuStreamDestroy_v2(CUstream stream) {
    return destroy(stream, REAL(cuStreamDestroy_v2));
}

static CUresult begun(CUresult result) {
    pace_resume();
    return result;
}

/* Paused until the driver has begun it: no look may ask the stream meanwhile. */
static void begin(CUstream stream, bool per_thread) {
    pace_let_go(stream, per_thread);
    captures_begin();
    pace_pause();
}

EXPORT CUresult cuStreamBeginCapture(CUstream stream) {
    begin(stream, false);
    return begun(REAL(cuStreamBeginCapture)(stream));
}

EXPORT CUresult cuStreamBeginCapture_ptsz(CUstream stream) {
    begin(stream, true);
    return begun(REAL(cuStreamBeginCapture_ptsz)(stream));
}

EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, int mode) {
    begin(stream, false);
    return begun(REAL(cuStreamBeginCapture_v2)(stream, mode));
}

EXPORT CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, int mode) {
    begin(stream, true);
    return begun(REAL(cuStreamBeginCapture_v2_ptsz)(stream, mode));
}

EXPORT CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *after, const void *edges,
                                            size_t count, int mode) {
    begin(stream, false);
    return begun(REAL(cuStreamBeginCaptureToGraph)(stream, graph, after, edges, count, mode));
}

EXPORT CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph, const CUgraphNode *after,
                                                 const void *edges, size_t count, int mode) {
    begin(stream, true);
    return begun(REAL(cuStreamBeginCaptureToGraph_ptsz)(stream, graph, after, edges, count, mode));
}
