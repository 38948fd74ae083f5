/* Linear memory: cuMemAlloc, Pitch, Managed, and what is freed by address. */
#include <pthread.h>

#include "granules.h"
#include "holdings.h"
#include "release.h"

struct claim {
    int gpu;
    uint64_t charged;
    bool in_gap; /* nothing was charged: the block should find room in a granule that is */
};

/* One at a time tries whether a block fits into what is charged, so that at most one granule is taken too much, for as
 * long as it takes to give it back. */
static pthread_mutex_t gap_lock = PTHREAD_MUTEX_INITIALIZER;

static CUresult claim(struct claim *claim, uint64_t bytes) {
    *claim = (struct claim){.gpu = gpu_of_context()};
    if (claim->gpu < 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (bytes > LARGEST_SIZE) return CUDA_ERROR_OUT_OF_MEMORY;
    claim->charged = TO_GRANULES(bytes);
    if (account_charge(claim->gpu, claim->charged)) return CUDA_SUCCESS;
    claim->in_gap = bytes && bytes < GRANULE && granules_have_gap(bytes, claim->gpu);
    if (claim->in_gap) {
        claim->charged = 0;
        pthread_mutex_lock(&gap_lock);
        return CUDA_SUCCESS;
    }
    return charge(claim->gpu, claim->charged) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult give_back(const struct claim *claim, CUdeviceptr address, uint64_t bytes) {
    REAL(cuMemFree_v2)(address);
    granules_leave(address, bytes);
    account_release(claim->gpu, claim->charged);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Bring the charge to what the block really took. */
static CUresult enter(const struct claim *claim, CUdeviceptr address, uint64_t bytes) {
    uint64_t took = granules_enter(address, bytes, claim->gpu);
    if (took > claim->charged && !account_charge(claim->gpu, took - claim->charged))
        return give_back(claim, address, bytes);
    if (took < claim->charged) account_release(claim->gpu, claim->charged - took);
    struct holding holding = {
        .kind = BLOCK,
        .value = address,
        .record = {.bytes = bytes, .context = current_context(), .gpu = claim->gpu},
    };
    if (holdings_add(holding)) return CUDA_SUCCESS;
    struct claim all = {.gpu = claim->gpu, .charged = took};
    return give_back(&all, address, bytes);
}

static CUresult settle(const struct claim *claim, CUresult result, CUdeviceptr address, uint64_t bytes) {
    if (result == CUDA_SUCCESS)
        result = enter(claim, address, bytes);
    else
        account_release(claim->gpu, claim->charged);
    if (claim->in_gap) pthread_mutex_unlock(&gap_lock);
    return result;
}

static CUresult take(CUdeviceptr *address, size_t bytes) {
    struct claim c;
    CUresult result = claim(&c, bytes);
    if (result != CUDA_SUCCESS) return result;
    result = REAL(cuMemAlloc_v2)(address, bytes);
    return settle(&c, result, *address, bytes);
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
    CUdeviceptr taken = 0;
    return ANSWERED(address, taken, take(&taken, bytes));
}

static CUresult take_managed(CUdeviceptr *address, size_t bytes, unsigned flags) {
    struct claim c;
    CUresult result = claim(&c, bytes);
    if (result != CUDA_SUCCESS) return result;
    result = REAL(cuMemAllocManaged)(address, bytes, flags);
    return settle(&c, result, *address, bytes);
}

EXPORT CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned flags) {
    CUdeviceptr taken = 0;
    return ANSWERED(address, taken, take_managed(&taken, bytes, flags));
}

static CUresult take_pitched(CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned element) {
    /* The driver pads each row, to 512 bytes on all present GPUs. What it took is told by the pitch it answers. */
    uint64_t row = (width + 511) & ~511ULL, bytes;
    if (row < width || __builtin_mul_overflow(row, height, &bytes)) bytes = UINT64_MAX;
    struct claim c;
    CUresult result = claim(&c, bytes);
    if (result != CUDA_SUCCESS) return result;
    result = REAL(cuMemAllocPitch_v2)(address, pitch, width, height, element);
    return settle(&c, result, *address, *pitch * height);
}

EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height,
                                   unsigned element) {
    CUdeviceptr taken = 0;
    size_t padded = 0;
    if (!pitch) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = ANSWERED(address, taken, take_pitched(&taken, &padded, width, height, element));
    return ANSWERED(pitch, padded, result);
}

static void left(const struct holding *block) {
    if (block->record.flags & LENT) account_recall(block->value);
    account_release(block->record.gpu, granules_leave(block->value, block->record.bytes));
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr address) {
    struct holding block;
    /* Taken out first: once the driver has freed it, another thread may be given the same address. */
    bool ours = holdings_take(BLOCK, address, &block) || pools_take_block(address, &block);
    CUresult result = REAL(cuMemFree_v2)(address);
    if (ours && result != CUDA_SUCCESS)
        holdings_add(block);
    else if (ours && block.kind == BLOCK)
        left(&block);
    else if (ours)
        pools_block_freed(&block);
    return result;
}

void blocks_gone(const struct holding *block) {
    left(block);
}

static void forget(void) {
    pthread_mutex_init(&gap_lock, NULL);
}

__attribute__((constructor)) static void prepare(void) {
    pthread_atfork(NULL, NULL, forget);
}
