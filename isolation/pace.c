#include "pace.h"

void pace_before(CUstream stream, bool per_thread) {
    (void)stream, (void)per_thread;
}

void pace_after(CUstream stream, bool per_thread) {
    (void)stream, (void)per_thread;
}
