#include "strict.h"
void add_completion(void)
{
}
