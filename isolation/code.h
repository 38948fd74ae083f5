/* Code that is loaded by functions which have no name. */
#ifndef ALIQUOT_CODE_H
#define ALIQUOT_CODE_H

#include "driver.h"

typedef CUresult code_loader(CUmodule *module, const void *content, const void *with);

/* Load a module from memory by that function, which is told `with`. The driver may come back to what it was given for as
 * long as it is loaded: those who call such functions never free it. */
CUresult code_load(CUmodule *module, const void *content, code_loader *load, const void *with);

#endif
