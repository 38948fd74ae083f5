/* All ways to take memory by their names, and what is done by any of them. */
#include "tenant.h"

#include <string.h>
#include <time.h>

const struct way ways[] = {
    {"linear", take_linear, give_linear},
    {"managed", take_managed, give_linear},
    {"pitched", take_pitched, give_linear},
    {"async", take_async, give_async},
    {"async-thread", take_async_thread, give_async},
    {"pool", take_pool, give_pool},
    {"pool-thread", take_pool_thread, give_pool_thread},
    {"array", take_array, give_array},
    {"array3d", take_array3d, give_array},
    {"mipmap", take_mipmap, give_mipmap},
    {"handle", take_handle, give_handle},
    {"mapped", take_mapped, give_mapped},
    {"unbindable", take_unbindable, give_unbound},
    {"unbindable-address", take_unbindable_address, give_unbound},
    {"exported", take_exported, give_exported},
    {"exported-closed", take_exported_closed, give_handle},
    {"external", take_external, give_external},
    {"context", take_context, give_context},
    {"context-three", take_context_three, give_context},
    {"context-four", take_context_four, give_context},
    {"context-attached", take_context_attached, give_context_attached},
    {"module", take_module, give_module},
    {"fat", take_fat, give_module},
    {"file", take_file, give_module},
    {"text", take_text, give_module},
    {"numbered", take_numbered, give_module},
    {"segment", take_segment, give_module},
    {"wrapped", take_wrapped, give_module},
    {"packed", take_packed, give_module},
    {"packed-zstd", take_packed_zstd, give_module},
    {"linked", take_linked, give_library},
    {"disguised", take_disguised, give_module},
    {"foreign", take_foreign, give_module},
    {"fat-mapped", take_fat_mapped, give_library},
    {"private", take_private, give_module},
    {"private-with", take_private_with, give_module},
    {"private-bare", take_private_bare, give_module},
    {"context-private", take_context_private, give_context},
    {"text-managed", take_text_managed, give_module},
    {"text-hex", take_text_hex, give_module},
    {"text-dots", take_text_dots, give_module},
    {"text-percent", take_text_percent, give_module},
    {"text-vectors", take_text_vectors, give_module},
    {"text-remark", take_text_remark, give_module},
    {"text-fat", take_text_fat, give_module},
    {"library", take_library, give_library},
    {"library-file", take_library_file, give_library},
    {"graph", take_graph, give_graph},
    {"graph-thread", take_graph_thread, give_graph},
    {"graph-upload", take_graph_upload, give_graph},
    {"graph-upload-thread", take_graph_upload_thread, give_graph},
    {"graph-made", take_graph_made, give_graph},
    {"graph-made-thread", take_graph_made_thread, give_graph},
    {"heap", take_heap, give_context},
    {"stack", take_stack, give_context},
    {"orphan", take_orphan, give_async},
    {"sparse", take_sparse, give_nothing},
    {"multicast", take_multicast, give_nothing},
    {"multicast-address", take_multicast_address, give_nothing},
    {"sparse-thread", take_sparse_thread, give_nothing},
    {"multicast-two", take_multicast_two, give_nothing},
    {"multicast-address-two", take_multicast_address_two, give_nothing},
};
#define WAYS ((int)(sizeof ways / sizeof *ways))
#define WAYS_BACK (WAYS - 6) /* the last ones lead nowhere back */

CUresult take(int way, uint64_t bytes) {
    if (held_count == MOST_HELD) return -1;
    struct held *h = &held[held_count];
    *h = (struct held){.way = way};
    CUresult result = ways[way].take(h, bytes);
    if (result == CUDA_SUCCESS) held_count++;
    return result;
}

CUresult give(int index) {
    struct held gone = held[index];
    held[index] = held[--held_count];
    return ways[gone.way].give(&gone);
}

int way_of(const char *name) {
    for (int way = 0; way < WAYS; way++)
        if (strcmp(ways[way].name, name) == 0) return way;
    return -1;
}

static uint64_t seed;

static uint64_t random_below(uint64_t most) {
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return seed % most;
}

static uint64_t random_size(void) {
    return 1 + (random_below(1ULL << 24) >> random_below(20));
}

void fill(const char *name, uint64_t bytes) {
    int count = 0, way = way_of(name);
    CUresult result;
    while ((result = take(way, bytes)) == CUDA_SUCCESS) count++;
    printf("%d %d\n", count, result);
}

CUresult start(void) {
    CUresult result = CU(cuInit)(0);
    if (!result) result = CU(cuDevicePrimaryCtxRetain)(&context, 0);
    if (result) context = NULL;
    if (!result) result = CU(cuCtxSetCurrent)(context);
    return result;
}

void churn(unsigned long long from, unsigned long long steps) {
    unsigned long long refused = 0;
    seed = from | 1;
    while (!context && start() != CUDA_SUCCESS) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    for (unsigned long long i = 0; i < steps; i++) {
        if (held_count && random_below(100) < 45)
            give((int)random_below((uint64_t)held_count));
        else if (take((int)random_below(WAYS_BACK), random_size()) != CUDA_SUCCESS)
            refused++;
    }
    printf("%d %llu\n", held_count, refused);
}

void empty(void) {
    while (held_count) give(held_count - 1);
    CU(cuCtxSynchronize)();
    puts("0");
}
