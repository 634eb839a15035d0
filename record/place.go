package record

// Place is where a record lives, as a client knows it from its own state.
type Place struct {
	Record string
	Host   HostRef
	// Generation and Address are the Directory's; 0 and "" without one.
	Generation int64
	Address    string
}
