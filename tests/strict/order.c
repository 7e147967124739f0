#include "strict.h"
void add_order(void)
{
}
