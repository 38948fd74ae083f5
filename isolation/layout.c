/* Nothing but the check that the two files are laid out as the agent reads and writes them. */
#include "lending.h"

#include "layout.h"
