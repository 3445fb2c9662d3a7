package disk

// For tests that use storetest, which imports this package.
var (
	ParseSums = parseSums
	SumUp     = (*File).sumUp
)
