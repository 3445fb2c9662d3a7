// Command libsar is the engine as a C shared library (libsar.so).
package main

import _ "sar/capi/export"

func main() {}
