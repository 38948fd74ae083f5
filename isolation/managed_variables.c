#include "managed_variables.h"

#include <stdlib.h>

#include "driver.h"
#include "granules.h"
#include "table.h"

struct variable {
    struct variable *next;
    struct managed *block;
    struct range range;
};

static bool told(uint64_t *value, int attribute, uint64_t address) {
    *value = 0;
    return REAL(cuPointerGetAttribute)(value, attribute, address) == CUDA_SUCCESS;
}

static bool is_managed(uint64_t address) {
    uint64_t managed;
    return told(&managed, POINTER_IS_MANAGED, address) && managed;
}

static bool range_at(struct range *range, uint64_t address) {
    *range = (struct range){.gpu = -1};
    return told(&range->address, POINTER_RANGE_START, address) && told(&range->bytes, POINTER_RANGE_BYTES, address) &&
           range->address <= address && address - range->address < range->bytes && range->bytes <= LARGEST_SIZE;
}

static bool add(struct variable **known, struct managed_core *core, struct range range) {
    struct variable *variable = malloc(sizeof *variable);
    struct managed *block = variable ? managed_core_find(core, range) : NULL;
    if (!block) {
        free(variable);
        return false;
    }
    *variable = (struct variable){*known, block, range};
    *known = variable;
    return true;
}

/* Where nothing managed lies the look ends: a driver refuses ranges with such. */
static bool find_in(struct variable **known, struct managed_core *core, const struct range *range) {
    uint64_t at = range->address, end = at + range->bytes < at ? UINT64_MAX : at + range->bytes;
    while (at < end) {
        uint64_t until = managed_core_known_until(core, at);
        struct range found;
        if (until == at) {
            if (!is_managed(at)) return true;
            if (!range_at(&found, at) || !add(known, core, found)) return false;
            until = found.address + found.bytes;
        }
        at = until;
    }
    return true;
}

bool variables_find(struct variable **known, struct managed_core *core, const struct placing *placing) {
    for (size_t at = 0; at < placing->count; at++)
        if (!find_in(known, core, &placing->ranges[at])) return false;
    return true;
}

/* ------------------------------------------------------------------ that are gone */

static void forget(struct variable **at, struct managed_core *core) {
    struct variable *gone = *at;
    *at = gone->next;
    managed_core_leave(core, gone->block);
    free(gone);
}

static bool is_there(const struct variable *variable) {
    struct range found;
    if (!is_managed(variable->range.address) || !range_at(&found, variable->range.address)) return false;
    return found.address == variable->range.address && found.bytes == variable->range.bytes;
}

void variables_settle(struct variable **known, struct managed_core *core) {
    while (*known)
        if (is_there(*known))
            known = &(*known)->next;
        else
            forget(known, core);
}

void variables_replaced(struct variable **known, struct managed_core *core, struct range block) {
    while (*known) {
        const struct range *range = &(*known)->range;
        if (range->address < block.address + block.bytes && block.address < range->address + range->bytes)
            forget(known, core);
        else
            known = &(*known)->next;
    }
}
