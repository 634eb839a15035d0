package outbox

const childEnv = "HOLDFAST_TEST_OUTBOX"

func runChild(string) error { return nil }
