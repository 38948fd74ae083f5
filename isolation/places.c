/* Where a container finds its limits and its account: the agent mounts them there. */
#include "limits.h"

const char limits_path[] = "/run/aliquot/isolation/limits";
const char account_path[] = "/run/aliquot/isolation/account";
