/* What fills and copies memory on the GPU itself: functions that come in twos, for the default stream of all threads and
 * for each thread's own. EACH_SYNC and EACH_ASYNC name them, what tells whether the GPU has work by it, their parameters
 * and how these are passed on. EACH_TOLD_SYNC and EACH_TOLD_ASYNC are told by a structure, EACH_BATCH by lists: what is
 * judged of these is a copy, which the driver gets. Copies from and to the host are no work of the GPU's processors: copy
 * engines do them. */
#ifndef ALIQUOT_COPIES_H
#define ALIQUOT_COPIES_H

#include <stdbool.h>

#include "driver.h"

struct flat_side {
    size_t x, y;
    int kind;
    const void *host;
    CUdeviceptr device;
    CUarray array;
    size_t pitch;
};

struct flat_copy {
    struct flat_side from, to;
    size_t width, height;
};

struct deep_side {
    size_t x, y, z, level;
    int kind;
    const void *host;
    CUdeviceptr device;
    CUarray array;
    void *context;
    size_t pitch, height;
};

struct deep_copy {
    struct deep_side from, to;
    size_t width, height, depth;
};

#define EACH_SYNC(X)                                                                                                     \
    X(cuMemsetD8_v2, true, (CUdeviceptr to, unsigned char value, size_t count), (to, value, count))                      \
    X(cuMemsetD16_v2, true, (CUdeviceptr to, unsigned short value, size_t count), (to, value, count))                    \
    X(cuMemsetD32_v2, true, (CUdeviceptr to, unsigned value, size_t count), (to, value, count))                          \
    X(cuMemsetD2D8_v2, true, (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height),           \
      (to, pitch, value, width, height))                                                                                 \
    X(cuMemsetD2D16_v2, true, (CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height),         \
      (to, pitch, value, width, height))                                                                                 \
    X(cuMemsetD2D32_v2, true, (CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height),               \
      (to, pitch, value, width, height))                                                                                 \
    X(cuMemcpy, both_here(to, from), (CUdeviceptr to, CUdeviceptr from, size_t bytes), (to, from, bytes))                \
    X(cuMemcpyDtoD_v2, true, (CUdeviceptr to, CUdeviceptr from, size_t bytes), (to, from, bytes))                        \
    X(cuMemcpyDtoA_v2, true, (CUarray to, size_t at, CUdeviceptr from, size_t bytes), (to, at, from, bytes))             \
    X(cuMemcpyAtoD_v2, true, (CUdeviceptr to, CUarray from, size_t at, size_t bytes), (to, from, at, bytes))             \
    X(cuMemcpyAtoA_v2, true, (CUarray to, size_t at, CUarray from, size_t from_at, size_t bytes),                        \
      (to, at, from, from_at, bytes))                                                                                    \
    X(cuMemcpyPeer, true, (CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here, size_t bytes),             \
      (to, there, from, here, bytes))

#define EACH_TOLD_SYNC(X)                                         \
    X(cuMemcpy2D_v2, struct flat_copy, flat_here(copy))           \
    X(cuMemcpy2DUnaligned_v2, struct flat_copy, flat_here(copy))  \
    X(cuMemcpy3D_v2, struct deep_copy, deep_here(copy))           \
    X(cuMemcpy3DPeer, struct deep_copy, deep_here(copy))

#define EACH_ASYNC(X)                                                                                                    \
    X(cuMemsetD8Async, true, (CUdeviceptr to, unsigned char value, size_t count, CUstream stream),                       \
      (to, value, count, stream))                                                                                        \
    X(cuMemsetD16Async, true, (CUdeviceptr to, unsigned short value, size_t count, CUstream stream),                     \
      (to, value, count, stream))                                                                                        \
    X(cuMemsetD32Async, true, (CUdeviceptr to, unsigned value, size_t count, CUstream stream),                           \
      (to, value, count, stream))                                                                                        \
    X(cuMemsetD2D8Async, true,                                                                                           \
      (CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height, CUstream stream),                 \
      (to, pitch, value, width, height, stream))                                                                         \
    X(cuMemsetD2D16Async, true,                                                                                          \
      (CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height, CUstream stream),                \
      (to, pitch, value, width, height, stream))                                                                         \
    X(cuMemsetD2D32Async, true,                                                                                          \
      (CUdeviceptr to, size_t pitch, unsigned value, size_t width, size_t height, CUstream stream),                      \
      (to, pitch, value, width, height, stream))                                                                         \
    X(cuMemcpyAsync, both_here(to, from), (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),             \
      (to, from, bytes, stream))                                                                                         \
    X(cuMemcpyDtoDAsync_v2, true, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream),                     \
      (to, from, bytes, stream))                                                                                         \
    X(cuMemcpyPeerAsync, true,                                                                                           \
      (CUdeviceptr to, CUcontext there, CUdeviceptr from, CUcontext here, size_t bytes, CUstream stream),                \
      (to, there, from, here, bytes, stream))                                                                            \
    X(cuMemcpyWithAttributesAsync, both_here(to, from),                                                                  \
      (CUdeviceptr to, CUdeviceptr from, size_t bytes, void *attributes, CUstream stream),                               \
      (to, from, bytes, attributes, stream))                                                                             \
    X(cuMemcpy3DWithAttributesAsync, true, (void *copy, unsigned long long flags, CUstream stream),                      \
      (copy, flags, stream))                                                                                             \
    X(cuMemcpy3DBatchAsync, true,                                                                                        \
      (size_t count, void *copies, size_t *failed, unsigned long long flags, CUstream stream),                           \
      (count, copies, failed, flags, stream))                                                                            \
    X(cuMemcpy3DBatchAsync_v2, true, (size_t count, void *copies, unsigned long long flags, CUstream stream),            \
      (count, copies, flags, stream))                                                                                    \
    X(cuMemBatchDecompressAsync, true,                                                                                   \
      (void *streams, size_t count, unsigned flags, size_t *failed, CUstream stream),                                    \
      (streams, count, flags, failed, stream))

#define EACH_TOLD_ASYNC(X)                                  \
    X(cuMemcpy2DAsync_v2, struct flat_copy, flat_here(copy)) \
    X(cuMemcpy3DAsync_v2, struct deep_copy, deep_here(copy)) \
    X(cuMemcpy3DPeerAsync, struct deep_copy, deep_here(copy))

#define EACH_BATCH(X)                                                                                                    \
    X(cuMemcpyBatchAsync,                                                                                                \
      (CUdeviceptr * to, CUdeviceptr *from, size_t *bytes, size_t count, void *attributes, size_t *which, size_t kinds,  \
       size_t *failed, CUstream stream),                                                                                 \
      (told.to, told.from, bytes, count, attributes, which, kinds, failed, stream))                                      \
    X(cuMemcpyBatchAsync_v2,                                                                                             \
      (CUdeviceptr * to, CUdeviceptr *from, size_t *bytes, size_t count, void *attributes, size_t *which, size_t kinds,  \
       CUstream stream),                                                                                                 \
      (told.to, told.from, bytes, count, attributes, which, kinds, stream))

#define DECLARE_SYNC(name, works, shape, passed) CUresult name shape, name##_ptds shape;
#define DECLARE_ASYNC(name, works, shape, passed) CUresult name shape, name##_ptsz shape;
#define DECLARE_TOLD_SYNC(name, kind, works) CUresult name(const kind *copy), name##_ptds(const kind *copy);
#define DECLARE_TOLD_ASYNC(name, kind, works) \
    CUresult name(const kind *copy, CUstream stream), name##_ptsz(const kind *copy, CUstream stream);
#define DECLARE_BATCH(name, shape, passed) CUresult name shape, name##_ptsz shape;
EACH_SYNC(DECLARE_SYNC)
EACH_ASYNC(DECLARE_ASYNC)
EACH_TOLD_SYNC(DECLARE_TOLD_SYNC)
EACH_TOLD_ASYNC(DECLARE_TOLD_ASYNC)
EACH_BATCH(DECLARE_BATCH)

#endif
