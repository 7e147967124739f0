#include "strict.h"
void add_receives(void)
{
}
