#include "strict.h"
void add_states(void)
{
}
