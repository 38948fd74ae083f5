/* Linear memory: cuMemAlloc, Pitch, Managed, and what is freed by address. */
#include <pthread.h>

#include "granules.h"
#include "holdings.h"
#include "managed.h"
#include "release.h"

struct claim {
    int gpu;
    uint64_t charged;
    bool in_gap; /* nothing was charged: the block should find room in a granule that is */
    bool missed; /* it did not, and goes the way of all others */
    struct taking *taking; /* of managed memory */
};

/* Held by whoever gives up what is charged for a block's granules.
 *
 * Of blocks that come into one granule the first has to charge it, and only then may the others give up their charges:
 * else somebody else is given what they gave up, and the granule is charged past the limit for as long as they stay.
 *
 * Who tries whether a block fits into what is charged holds it from the look for a gap until that is settled. Another
 * thread may be quicker to fill the gap or to free its granule, but then keeps one charged that the driver has not
 * taken, and the two make up for each other. What is left is a driver that leaves the gap as it is: one at a time
 * tries, so that one granule is taken too much, for as long as it takes to give it back. */
static pthread_mutex_t release_lock = PTHREAD_MUTEX_INITIALIZER;

static CUresult might_have(int gpu, uint64_t bytes) {
    if (gpu < 0) return CUDA_ERROR_INVALID_CONTEXT;
    return bytes > LARGEST_SIZE ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

/* Whether there is one, which is held against others until the claim is settled. */
static bool find_gap(struct claim *claim, uint64_t bytes) {
    pthread_mutex_lock(&release_lock);
    claim->in_gap = granules_have_gap(bytes, claim->gpu);
    if (claim->in_gap)
        claim->charged = 0;
    else
        pthread_mutex_unlock(&release_lock);
    return claim->in_gap;
}

static CUresult claim_on(struct claim *claim, int gpu, uint64_t bytes) {
    *claim = (struct claim){.gpu = gpu, .missed = claim->missed, .taking = claim->taking};
    CUresult refused = might_have(gpu, bytes);
    if (refused) return refused;
    claim->charged = TO_GRANULES(bytes);
    if (account_charge(claim->gpu, claim->charged)) return CUDA_SUCCESS;
    if (!claim->missed && find_gap(claim, bytes)) return CUDA_SUCCESS;
    return charge(claim->gpu, claim->charged) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult claim(struct claim *claim, uint64_t bytes) {
    return claim_on(claim, gpu_of_context(), bytes);
}

static void lock_releases(const struct claim *claim) {
    if (!claim->in_gap) pthread_mutex_lock(&release_lock);
}

static void unlock_releases(const struct claim *claim) {
    if (!claim->in_gap) pthread_mutex_unlock(&release_lock);
}

/* Others may have come into its granules meanwhile: those stay, and stay charged. */
static CUresult give_back(const struct claim *claim, CUdeviceptr address, uint64_t bytes) {
    REAL(cuMemFree_v2)(address);
    lock_releases(claim);
    account_release(claim->gpu, granules_leave(address, bytes, claim->gpu));
    unlock_releases(claim);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Bring the charge to what the block really took, also where that does not fit (false): it is there until it is given
 * back. */
static bool charge_taken(const struct claim *claim, CUdeviceptr address, uint64_t bytes) {
    bool (*ask)(int gpu, uint64_t more) = claim->in_gap ? account_charge : charge;
    lock_releases(claim);
    uint64_t took = granules_enter(address, bytes, claim->gpu);
    bool fits = took <= claim->charged || ask(claim->gpu, took - claim->charged);
    if (!fits) account_charge_anyway(claim->gpu, took - claim->charged);
    if (took < claim->charged) account_release(claim->gpu, claim->charged - took);
    unlock_releases(claim);
    return fits;
}

static CUresult enter(const struct claim *claim, CUdeviceptr address, uint64_t bytes) {
    if (!charge_taken(claim, address, bytes)) return give_back(claim, address, bytes);
    struct managed *managed = NULL;
    if (claim->taking && !managed_enter(claim->taking, (struct range){address, bytes, claim->gpu}, &managed))
        return give_back(claim, address, bytes);
    struct holding holding = {
        .kind = BLOCK,
        .value = address,
        .record = {.bytes = bytes, .context = current_context(), .extra = (uintptr_t)managed, .gpu = claim->gpu},
    };
    if (holdings_add(holding)) return CUDA_SUCCESS;
    CUresult refused = give_back(claim, address, bytes);
    managed_leave(managed);
    return refused;
}

/* Whether all is done; false if the block missed the gap: then it is claimed anew. */
static bool settle(struct claim *claim, CUresult *result, CUdeviceptr address, uint64_t bytes) {
    if (*result == CUDA_SUCCESS)
        *result = enter(claim, address, bytes);
    else
        account_release(claim->gpu, claim->charged);
    claim->missed = claim->in_gap && *result == CUDA_ERROR_OUT_OF_MEMORY;
    if (claim->in_gap) pthread_mutex_unlock(&release_lock);
    return !claim->missed;
}

static CUresult take(CUdeviceptr *address, size_t bytes) {
    struct claim c = {0};
    CUresult result;
    do {
        result = claim(&c, bytes);
        if (result != CUDA_SUCCESS) return result;
        result = REAL(cuMemAlloc_v2)(address, bytes);
    } while (!settle(&c, &result, *address, bytes));
    return result;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
    CUdeviceptr taken = 0;
    return ANSWERED(address, taken, take(&taken, bytes));
}

/* Whether all is done, as in settle. */
static bool take_guarded(int gpu, struct claim *claim, CUresult *result, CUdeviceptr *address, size_t bytes, unsigned flags) {
    *result = claim_on(claim, gpu, bytes);
    if (*result != CUDA_SUCCESS) return true;
    *result = REAL(cuMemAllocManaged)(address, bytes, flags);
    return settle(claim, result, *address, bytes);
}

/* Guarded first: that may take its time, and who claims a gap keeps others from it. */
static CUresult take_managed(CUdeviceptr *address, size_t bytes, unsigned flags) {
    struct taking taking;
    struct claim c = {.taking = &taking};
    int gpu = gpu_of_context();
    CUresult result = might_have(gpu, bytes);
    bool done = result != CUDA_SUCCESS;
    while (!done) {
        if (!managed_taking(&taking, gpu, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
        done = take_guarded(gpu, &c, &result, address, bytes, flags);
        managed_taken(&taking);
    }
    return result;
}

EXPORT CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned flags) {
    CUdeviceptr taken = 0;
    return ANSWERED(address, taken, take_managed(&taken, bytes, flags));
}

static CUresult take_pitched(CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned element) {
    /* The driver pads each row, to 512 bytes on all present GPUs. What it took is told by the pitch it answers. */
    uint64_t row = (width + 511) & ~511ULL, bytes;
    if (row < width || __builtin_mul_overflow(row, height, &bytes)) bytes = UINT64_MAX;
    struct claim c = {0};
    CUresult result;
    do {
        result = claim(&c, bytes);
        if (result != CUDA_SUCCESS) return result;
        result = REAL(cuMemAllocPitch_v2)(address, pitch, width, height, element);
    } while (!settle(&c, &result, *address, *pitch * height));
    return result;
}

EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height,
                                   unsigned element) {
    CUdeviceptr taken = 0;
    size_t padded = 0;
    if (!pitch) return CUDA_ERROR_INVALID_VALUE;
    CUresult result = ANSWERED(address, taken, take_pitched(&taken, &padded, width, height, element));
    return ANSWERED(pitch, padded, result);
}

static struct managed *managed_of(const struct holding *block) {
    return (struct managed *)(uintptr_t)block->record.extra;
}

static void left(const struct holding *block) {
    if (block->record.flags & LENT) account_recall(block->value);
    managed_leave(managed_of(block));
    int gpu = block->record.gpu;
    pthread_mutex_lock(&release_lock);
    account_release(gpu, granules_leave(block->value, block->record.bytes, gpu));
    pthread_mutex_unlock(&release_lock);
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr address) {
    struct holding block;
    /* Taken out first: once the driver has freed it, another thread may be given the same address. */
    bool ours = holdings_take(BLOCK, address, &block) || pools_take_block(address, &block);
    if (ours && block.kind == BLOCK) managed_vacated(managed_of(&block));
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
    pthread_mutex_init(&release_lock, NULL);
}

__attribute__((constructor)) static void prepare(void) {
    pthread_atfork(NULL, NULL, forget);
}
