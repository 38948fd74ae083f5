/* Reads cases and says of each whether it was taken: how ('4' LZ4, 'z' zstd, 'f' a fat binary, 'k' a copy of one, 't'
 * text), the size that it should have, the size that it has, and its bytes. Each lies by itself, so that sanitizers see who
 * reads or writes past. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "devices.h"
#include "fat.h"
#include "ptx.h"
#include "unpack.h"
#include "weights.h"

/* One GPU, of compute capability 9.0. */
bool gpus_may_load(unsigned machine) {
    return !machine || machine == 90;
}

bool gpus_may_compile(unsigned machine) {
    return machine <= 90;
}

static void *exactly(const void *from, size_t bytes) {
    void *room = malloc(bytes);
    if (from && bytes) memcpy(room, from, bytes);
    return room;
}

static bool take(char how, uint64_t size, unsigned char *from, uint64_t bytes) {
    if (how == 'f') return fat_bytes(from, bytes) != UNKNOWN_WEIGHT;
    if (how == 'k') return fat_keep_known(from, bytes) != UNKNOWN_WEIGHT;
    if (how == 't') return text_variables((const char *)from, bytes) != UNKNOWN_WEIGHT;
    unsigned char *to = exactly(NULL, size);
    bool taken = (how == '4' ? unpack_lz4 : unpack_zstd)(to, size, from, bytes);
    free(to);
    return taken;
}

int main(void) {
    char how;
    uint64_t size, bytes;
    while (fread(&how, 1, 1, stdin) == 1 && fread(&size, 8, 1, stdin) == 1 && fread(&bytes, 8, 1, stdin) == 1) {
        unsigned char *from = exactly(NULL, bytes);
        if (fread(from, 1, bytes, stdin) != bytes) return 3;
        putchar(take(how, size, from, bytes) ? '1' : '0');
        free(from);
    }
    return 0;
}
