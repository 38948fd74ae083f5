/* Managed variables of modules: the driver takes them with the code, which is charged whole, and tells of them only who asks.
 * Whoever calls these holds the lock of managed memory. */
#ifndef ALIQUOT_MANAGED_VARIABLES_H
#define ALIQUOT_MANAGED_VARIABLES_H

#include <stdbool.h>

#include "managed_core.h"

struct variable;

/* Know those that a call is about to place. False: not all can be, and the call is to be left out. */
bool variables_find(struct variable **known, struct managed_core *core, const struct placing *placing);

/* Forget those that went with their module, as the driver tells; and those in whose place a block was taken. */
void variables_settle(struct variable **known, struct managed_core *core);
void variables_replaced(struct variable **known, struct managed_core *core, struct range block);

#endif
