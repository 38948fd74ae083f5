/* cuGetExportTable: the driver's private functions, in tables that are known by a number each. CUDA's runtime needs them.
 *
 * No document has them; those who made drivers of their own have described what programs ask for. A table begins with
 * its size in bytes. Of those that were described two give memory. The runtime's does by three functions that load code
 * (its older versions load all of theirs so) and one that gives a GPU's primary context, the other by one that makes
 * contexts. Whoever asks for these gets a copy of the table, with ours in their place. All others are the driver's own.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "code.h"
#include "table.h"

#define MOST_WORDS 4096U

enum { LOAD_WRAPPED = 1, GET_PRIMARY = 2, LOAD_WRAPPED_WITH = 6, LOAD_BARE_WITH = 8, CREATE_CONTEXT = 1 };
enum { RUNTIME, CONTEXTS, TABLES };

static const CUuuid known[TABLES] = {
    [RUNTIME] = {{0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9}},
    [CONTEXTS] = {{0x0c, 0xa5, 0x0b, 0x8c, 0x10, 0x04, 0x92, 0x9a, 0x89, 0xa7, 0xd0, 0xdf, 0x10, 0xe7, 0x72, 0x86}},
};

static void *const *_Atomic driver_tables[TABLES];
static void **_Atomic our_tables[TABLES];

/* What two of the loaders are told besides. */
struct rest {
    void *one, *two;
    uintptr_t three;
};

typedef CUresult wrapped_loader(CUmodule *module, const void *wrapper);
typedef CUresult wrapped_loader_with(CUmodule *module, const void *wrapper, void *one, void *two, uintptr_t three);
typedef CUresult bare_loader_with(const void *binary, CUmodule *module, void *one, void *two, uintptr_t three);

static CUresult wrapped(CUmodule *module, const void *content, const void *with) {
    (void)with;
    return ((wrapped_loader *)driver_tables[RUNTIME][LOAD_WRAPPED])(module, content);
}

static CUresult wrapped_with(CUmodule *module, const void *content, const void *with) {
    const struct rest *rest = with;
    wrapped_loader_with *load = (wrapped_loader_with *)driver_tables[RUNTIME][LOAD_WRAPPED_WITH];
    return load(module, content, rest->one, rest->two, rest->three);
}

static CUresult bare_with(CUmodule *module, const void *content, const void *with) {
    const struct rest *rest = with;
    bare_loader_with *load = (bare_loader_with *)driver_tables[RUNTIME][LOAD_BARE_WITH];
    return load(content, module, rest->one, rest->two, rest->three);
}

static CUresult load_wrapped(CUmodule *module, const void *wrapper) {
    return code_load(module, wrapper, wrapped, NULL);
}

static CUresult load_wrapped_with(CUmodule *module, const void *wrapper, void *one, void *two, uintptr_t three) {
    return code_load(module, wrapper, wrapped_with, &(struct rest){one, two, three});
}

static CUresult load_bare_with(const void *binary, CUmodule *module, void *one, void *two, uintptr_t three) {
    return code_load(module, binary, bare_with, &(struct rest){one, two, three});
}

static void put(void **table, size_t words, unsigned at, void *ours) {
    if (at < words && table[at]) table[at] = ours;
}

static void **copy_table(int which, void *const *real) {
    size_t bytes = (size_t)real[0], words = bytes / sizeof *real;
    void **copy = bytes % sizeof *real || words > MOST_WORDS ? NULL : malloc(bytes + 1);
    if (!copy) return NULL;
    memcpy(copy, real, bytes);
    if (which == RUNTIME) {
        put(copy, words, LOAD_WRAPPED, (void *)load_wrapped);
        put(copy, words, GET_PRIMARY, (void *)cuDevicePrimaryCtxRetain);
        put(copy, words, LOAD_WRAPPED_WITH, (void *)load_wrapped_with);
        put(copy, words, LOAD_BARE_WITH, (void *)load_bare_with);
    } else {
        put(copy, words, CREATE_CONTEXT, (void *)cuCtxCreate_v2);
    }
    return copy;
}

/* One copy of each, for ever; of two threads that make it at once one is too late. */
static CUresult our_table(int which, void *const *real, const void **table) {
    void **none = NULL, **made = our_tables[which] ? NULL : copy_table(which, real);
    if (made) driver_tables[which] = real;
    if (made && !atomic_compare_exchange_strong(&our_tables[which], &none, made)) free(made);
    *table = our_tables[which];
    return *table ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

EXPORT CUresult cuGetExportTable(const void **table, const CUuuid *id) {
    if (!table || !id) return REAL(cuGetExportTable)(table, id);
    const CUuuid asked = *id;
    const void *real = NULL;
    CUresult result = REAL(cuGetExportTable)(&real, &asked);
    for (int which = 0; result == CUDA_SUCCESS && real && which < TABLES; which++)
        if (memcmp(&asked, &known[which], sizeof asked) == 0) return our_table(which, real, table);
    *table = real;
    return result;
}
