#include "release.h"

void release_holding(const struct holding *holding) {
    switch (holding->kind) {
    case BLOCK: blocks_gone(holding); break;
    case ARRAY: arrays_gone(holding); break;
    case CODE: code_gone(holding); break;
    case IMPORTED: import_gone(holding); break;
    case CONTEXT_LIMIT: account_release(holding->record.gpu, holding->record.bytes); break;
    default: break; /* no other kind belongs to a context */
    }
}
