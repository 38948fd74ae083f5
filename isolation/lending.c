#include "lending.h"

static struct lending *lending(void) {
    return (struct lending *)((char *)account + LENDING_AT);
}

static uint64_t life_of(uint32_t slot) {
    return account_slots()[slot].life;
}

static uint64_t digest(const CUipcMemHandle *handle) {
    uint64_t value = 14695981039346656037ULL;
    for (unsigned i = 0; i < sizeof handle->bytes; i++) value = (value ^ handle->bytes[i]) * 1099511628211ULL;
    return value ? value : 1;
}

static bool is_charged_to_borrower(const struct borrowed *one) {
    return one->bytes && (one->orphan || one->lender >= MOST_PROCESSES || life_of(one->lender) != one->lender_life);
}

uint64_t lending_sum(int gpu) {
    uint64_t all = 0, count = lending()->highest;
    for (uint64_t i = 0; i < count && i < MOST_BORROWED; i++) {
        const struct borrowed *one = &lending()->borrowed[i];
        if ((int)one->gpu == gpu && is_charged_to_borrower(one)) all += one->bytes;
    }
    return all;
}

void lending_clear(uint32_t slot) {
    for (int i = 0; i < MOST_LENT; i++)
        if (lending()->lent[i].slot == slot) lending()->lent[i].handle = 0;
    for (int i = 0; i < MOST_BORROWED; i++)
        if (lending()->borrowed[i].borrower == slot) lending()->borrowed[i].bytes = 0;
}

void lending_lend(const CUipcMemHandle *handle, uint64_t address, uint64_t bytes, uint32_t slot, int gpu) {
    uint64_t wanted = digest(handle);
    struct lent *place = NULL;
    for (int i = MOST_LENT - 1; i >= 0; i--) {
        struct lent *one = &lending()->lent[i];
        if (!one->handle || one->handle == wanted) place = one;
        if (one->handle == wanted) break;
    }
    if (!place) return;
    place->handle = 0;
    place->address = address;
    place->bytes = bytes;
    place->life = life_of(slot);
    place->slot = slot;
    place->gpu = (uint32_t)gpu;
    place->handle = wanted;
}

static const struct lent *lender_of(const CUipcMemHandle *handle) {
    uint64_t wanted = digest(handle);
    for (int i = 0; i < MOST_LENT; i++) {
        const struct lent *one = &lending()->lent[i];
        if (one->handle == wanted && one->slot < MOST_PROCESSES && life_of(one->slot) == one->life) return one;
    }
    return NULL;
}

uint32_t lending_borrow(const CUipcMemHandle *handle, uint32_t slot) {
    const struct lent *lent = lender_of(handle);
    for (uint32_t i = 0; lent && i < MOST_BORROWED; i++) {
        struct borrowed *one = &lending()->borrowed[i];
        if (one->bytes) continue;
        one->address = lent->address;
        one->lender_life = lent->life;
        one->lender = lent->slot;
        one->borrower = slot;
        one->gpu = lent->gpu;
        one->orphan = 0;
        one->bytes = lent->bytes;
        if (lending()->highest <= i) lending()->highest = i + 1;
        return i + 1;
    }
    return 0;
}

void lending_return(uint32_t entry) {
    if (entry && entry <= MOST_BORROWED) lending()->borrowed[entry - 1].bytes = 0;
}

void lending_freed(uint64_t address, uint32_t slot) {
    for (int i = 0; i < MOST_LENT; i++)
        if (lending()->lent[i].slot == slot && lending()->lent[i].address == address) lending()->lent[i].handle = 0;
    for (int i = 0; i < MOST_BORROWED; i++) {
        struct borrowed *one = &lending()->borrowed[i];
        if (one->bytes && one->lender == slot && one->address == address && one->lender_life == life_of(slot))
            one->orphan = 1;
    }
}
