/* Device addresses of one process: blocks up to 1 MiB share granules of 2 MiB, larger ones have granules of their own,
 * and a granule goes back to the GPU with its last block. */
#ifndef FAKE_CUDA_HEAP_H
#define FAKE_CUDA_HEAP_H

#include <stdbool.h>
#include <stdint.h>

#define GRANULE_BYTES (2ULL << 20)
#define WHOLE(bytes) (((bytes) + GRANULE_BYTES - 1) / GRANULE_BYTES * GRANULE_BYTES)

uint64_t heap_take(int gpu, uint64_t bytes); /* 0: no room */
bool heap_give(uint64_t address);
/* A block whose granules may lie on any GPU each, at first on this one; a small one shares its granule, which stays. */
uint64_t heap_take_managed(int gpu, uint64_t bytes);
/* Bring all granules of managed blocks that a range touches to a GPU, or to the host (-1), as far as there is room. */
void heap_move(uint64_t address, uint64_t bytes, int gpu);
/* From now on what is brought to a GPU is a copy, and those that are elsewhere stay. */
void heap_copy(uint64_t address, uint64_t bytes);
/* Everything that was made in a context which is gone. */
void heap_give_all(const void *owner);
/* The block that an address lies in; false if none. */
bool heap_find(uint64_t address, uint64_t *base, uint64_t *bytes, int *gpu);
/* The same of whichever address in managed memory. */
bool heap_find_managed(uint64_t address, uint64_t *base, uint64_t *bytes);
/* Turn a block into one that other processes may open; its id, or 0. */
uint64_t heap_share(uint64_t address);
/* Give an address to a block of another process; 0 if it is gone. */
uint64_t heap_join(uint64_t id);
/* The address at which this process has it open already, once more; 0 if it has not. */
uint64_t heap_join_again(uint64_t id);
/* Addresses with nothing behind them. */
uint64_t heap_reserve(uint64_t bytes);

#endif
