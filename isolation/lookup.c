/* cuGetProcAddress: whoever asks the driver for a function by name gets ours where there is one.
 *
 * Rules: a name and version of ours gives our function. Another name of the table gives the driver's. A name that is
 * not in the table is newer than this library: it is refused if it looks like a new way to allocate, to launch or to
 * make a context, and forwarded otherwise. */
#include <stdbool.h>
#include <string.h>

#include "table.h"

#define LEGACY_ANSWER_NOT_FOUND 1
#define LONGEST_NAME 256 /* of one that is longer no driver has a function */

static bool per_thread(uint64_t flags, int index) {
    bool asked = (flags & LOOKUP_PER_THREAD_STREAM) || index == F_cuGetProcAddress_v2_ptsz;
    return asked;
}

/* Ours for that name at that version: the newest that is not newer than asked for, per-thread if there is such a one. */
static const struct driver_function *ours(const char *symbol, int version, bool per_thread_stream) {
    const struct driver_function *best = NULL;
    for (int i = 0; i < DRIVER_NAMES; i++) {
        const struct driver_function *one = &driver_functions[i];
        if (one->rule != OURS || one->since > version || (one->per_thread && !per_thread_stream)) continue;
        bool named = strcmp(one->base, symbol) == 0 || strcmp(one->name, symbol) == 0;
        /* CUDA 12 calls cuGraphInstantiate what was cuGraphInstantiateWithFlags before. */
        named = named || (version >= 12000 && strcmp(symbol, "cuGraphInstantiate") == 0 &&
                          strcmp(one->name, "cuGraphInstantiateWithFlags") == 0);
        if (!named) continue;
        bool newer = !best || one->per_thread > best->per_thread ||
                     (one->per_thread == best->per_thread && one->since > best->since);
        if (newer) best = one;
    }
    return best;
}

static bool is_refused(const char *symbol, int version) {
    bool known = false, wrapped = false, refused = false;
    for (int i = 0; i < DRIVER_NAMES; i++) {
        const struct driver_function *one = &driver_functions[i];
        if (strcmp(one->base, symbol) != 0 && strcmp(one->name, symbol) != 0) continue;
        known = true;
        refused = refused || one->rule == REFUSED;
        wrapped = wrapped || one->rule == OURS;
    }
    /* Of a function of ours the driver may know a variant that we do not, for a version older than all of ours. */
    if (known) return (refused || wrapped) && ours(symbol, version, true) == NULL;
    static const char *const forbidden[] = {"Alloc", "Create", "Launch", "Import", "Load", "Retain", "Instantiate", NULL};
    static const char *const families[] = {"cuMem",   "cuArray",  "cuMipmapped", "cuCtx",    "cuGreen",  "cuDevice",
                                           "cuGraph", "cuLaunch", "cuModule",    "cuLibrary", "cuImport", NULL};
    for (int i = 0; families[i]; i++)
        for (int j = 0; strncmp(symbol, families[i], strlen(families[i])) == 0 && forbidden[j]; j++)
            if (strstr(symbol, forbidden[j])) return true;
    return false;
}

static CUresult look_up(int index, const char *symbol, void **function, int version, uint64_t flags, int *status) {
    CUresult result = index == F_cuGetProcAddress
                          ? REAL(cuGetProcAddress)(symbol, function, version, flags)
                          : REAL_AS(index, cuGetProcAddress_v2)(symbol, function, version, flags, status);
    if (result != CUDA_SUCCESS || !*function) return result;
    const struct driver_function *found = ours(symbol, version, per_thread(flags, index));
    if (found) {
        *function = (void *)found->ours;
    } else if (is_refused(symbol, version)) {
        *function = NULL;
        *status = LEGACY_ANSWER_NOT_FOUND;
        return CUDA_ERROR_NOT_FOUND;
    }
    return result;
}

/* The name is read once, and the driver's own function never stands where another thread could see it. Told also is what
 * was not found: programs go by that. */
static CUresult answer(int index, const char *symbol, void **function, int version, uint64_t flags, int *status) {
    char name[LONGEST_NAME];
    void *found = NULL;
    int how = LEGACY_ANSWER_NOT_FOUND;
    if (!symbol || !function) return CUDA_ERROR_INVALID_VALUE;
    strncpy(name, symbol, sizeof name - 1);
    name[sizeof name - 1] = 0;
    CUresult result = look_up(index, name, &found, version, flags, &how);
    if (status) *status = how;
    *function = found;
    return result;
}

EXPORT CUresult cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags) {
    return answer(F_cuGetProcAddress, symbol, function, version, flags, NULL);
}

EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status) {
    return answer(F_cuGetProcAddress_v2, symbol, function, version, flags, status);
}

EXPORT CUresult cuGetProcAddress_v2_ptsz(const char *symbol, void **function, int version, uint64_t flags,
                                         int *status) {
    return answer(F_cuGetProcAddress_v2_ptsz, symbol, function, version, flags, status);
}
