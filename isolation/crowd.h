/* How many of the container's processes have work in flight at once, and for how long. */
#ifndef ALIQUOT_CROWD_H
#define ALIQUOT_CROWD_H

#include "account.h"

/* Count what the meter has that is not counted yet, once there is enough of it. */
void crowd_count(const struct meter *meter, struct crowd *crowd);

#endif
