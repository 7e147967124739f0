#include "strict.h"
void add_transitions(void)
{
}
