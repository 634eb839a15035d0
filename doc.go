// Package holdfast keeps work safe in the database that you already have.
//
// A program submits a task; a worker claims it under a lease, runs it and settles it. Nothing is lost
// when a process dies: the lease ends and another worker takes the task. Tasks live in ordinary
// tables, in one SQLite file (package sqlite) or in Postgres (package postgres), and programs in
// other languages that speak CairnQ protocol 1 share them.
//
//	var Resize = holdfast.Define[ResizeIn, ResizeOut]("image.resize")
//
//	store, err := sqlite.Open(ctx, "tasks.db")
//	client := holdfast.NewClient(store)
//	task, err := Resize.Submit(ctx, client, ResizeIn{Path: "a.png"})
//
//	worker := holdfast.NewWorker(store, holdfast.WorkerConfig{Concurrency: 16})
//	Resize.Handle(worker, func(ctx context.Context, run *holdfast.Run, in ResizeIn) (ResizeOut, error) { … })
//	err = worker.Run(ctx)
package holdfast
