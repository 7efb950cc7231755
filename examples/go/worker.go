// A worker for a queue of the bus in Go, with nothing but SQL and the driver pgx.
//
//	go run worker.go "postgresql://…" orders
//
// It leases messages, handles them in parallel, extends the leases of those that take long, acknowledges or gives
// back each one, and waits for notifications. Stop it with SIGTERM: messages that have begun are finished.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgconn"
	"github.com/jackc/pgx/v4"
	"github.com/jackc/pgx/v4/pgxpool"
)

const (
	ttl   = 30 * time.Second
	batch = 10
	// Retries and ended leases become ready without a notification.
	poll      = time.Second
	leaseLost = "MB015"
)

type message struct {
	iid     string
	token   int64
	attempt int
	data    []byte
}

// handle is your work. An error is a failed attempt: the message comes again later, at last it goes to the dead
// message queue.
func handle(data []byte, attempt int) error {
	var order struct {
		Number int
		Fails  bool
	}
	if err := json.Unmarshal(data, &order); err != nil {
		return err
	}
	if order.Fails && attempt == 1 {
		return errors.New("not the first time")
	}
	fmt.Printf("order %d, attempt %d\n", order.Number, attempt)
	return nil
}

func work(ctx context.Context, pool *pgxpool.Pool, one message) error {
	held, release := context.WithCancel(ctx)
	defer release()
	go extend(held, pool, one)
	statement, arguments := "select mbus.ack($1, $2)", []interface{}{one.iid, one.token}
	if failure := handle(one.data, one.attempt); failure != nil {
		statement = "select mbus.nack($1, $2, error => $3)"
		arguments = append(arguments, failure.Error())
	}
	_, err := pool.Exec(ctx, statement, arguments...)
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == leaseLost {
		// Another worker has the message, or will get it.
		return nil
	}
	return err
}

func extend(ctx context.Context, pool *pgxpool.Pool, one message) {
	ticker := time.NewTicker(ttl / 3)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			_, err := pool.Exec(ctx, "select mbus.extend($1, $2, make_interval(secs => $3))", one.iid, one.token, ttl.Seconds())
			if err != nil && ctx.Err() == nil {
				log.Printf("not extended: %v", err)
			}
		}
	}
}

func lease(ctx context.Context, pool *pgxpool.Pool, function string) ([]message, error) {
	text := "select iid, token, attempt, data from mbus." + function + "($1, make_interval(secs => $2))"
	rows, err := pool.Query(ctx, text, batch, ttl.Seconds())
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var found []message
	for rows.Next() {
		var one message
		if err := rows.Scan(&one.iid, &one.token, &one.attempt, &one.data); err != nil {
			return nil, err
		}
		found = append(found, one)
	}
	return found, rows.Err()
}

func run(url, queue string) error {
	stopping, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	// What has begun is finished after the signal, so the calls of the work do not depend on it.
	ctx := context.Background()
	pool, err := pgxpool.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	listener, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer listener.Close(ctx)
	if _, err := listener.Exec(ctx, "listen mbus"); err != nil {
		return err
	}
	// Names of functions cannot be parameters: quote them.
	function := pgx.Identifier{"lease_" + queue + "_by_default"}.Sanitize()
	fmt.Println("ready")
	for stopping.Err() == nil {
		found, err := lease(ctx, pool, function)
		if err != nil {
			return err
		}
		failed := make(chan error, len(found))
		var running sync.WaitGroup
		for _, one := range found {
			running.Add(1)
			go func(one message) {
				defer running.Done()
				if err := work(ctx, pool, one); err != nil {
					failed <- err
				}
			}(one)
		}
		running.Wait()
		select {
		case err := <-failed:
			// A lost connection ends the process; its leases end too. Let the service manager start it again.
			return err
		default:
		}
		if len(found) == 0 {
			waiting, cancel := context.WithTimeout(stopping, poll)
			_, err := listener.WaitForNotification(waiting)
			cancel()
			if err != nil && !pgconn.Timeout(err) && stopping.Err() == nil {
				return err
			}
		}
	}
	return nil
}

func main() {
	if len(os.Args) < 2 {
		log.Fatal("usage: worker URL [QUEUE]")
	}
	queue := "orders"
	if len(os.Args) > 2 {
		queue = os.Args[2]
	}
	if err := run(os.Args[1], queue); err != nil {
		log.Fatal(err)
	}
}
