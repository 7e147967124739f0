#include "strict.h"
void add_memory(void)
{
}
