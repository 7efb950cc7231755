import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.postgresql.PGConnection;

/**
 * A worker for a queue of the bus in Java, with nothing but SQL and the JDBC driver.
 *
 * <pre>java -cp postgresql.jar Worker.java "jdbc:postgresql://…" orders</pre>
 *
 * <p>It leases messages, extends a lease while its message is handled, acknowledges or gives back each one, and waits
 * for notifications. Stop it with SIGTERM: the message that has begun is finished.
 */
public class Worker {
    static final int TTL_SECONDS = 30;
    static final int BATCH = 10;
    // Retries and ended leases become ready without a notification.
    static final int POLL_MILLISECONDS = 1000;
    static final String LEASE_LOST = "MB015";

    record Message(String iid, long token, int attempt, String data) {}

    /** Your work. An error is a failed attempt: the message comes again later, at last it goes to the dead message queue. */
    static void handle(String data, int attempt) {
        if (data.contains("\"fails\": true") && attempt == 1) {
            throw new IllegalStateException("not the first time");
        }
        System.out.println("order " + data.replaceAll(".*\"number\": (\\d+).*", "$1") + ", attempt " + attempt);
    }

    public static void main(String[] arguments) throws Exception {
        String url = arguments[0];
        String queue = arguments.length > 1 ? arguments[1] : "orders";
        // Names of functions cannot be parameters: quote them.
        String lease = ("lease_" + queue + "_by_default").replace("\"", "\"\"");
        var stopping = new CountDownLatch(1);
        var stopped = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stopping.countDown();
            try {
                stopped.await(TTL_SECONDS, TimeUnit.SECONDS);
            } catch (InterruptedException ignored) {
                Thread.currentThread().interrupt();
            }
        }));
        // A lost connection ends the process; its leases end too. Let the service manager start it again.
        ScheduledExecutorService extensions = Executors.newSingleThreadScheduledExecutor();
        try (Connection connection = DriverManager.getConnection(url); Connection other = DriverManager.getConnection(url)) {
            connection.createStatement().execute("listen mbus");
            System.out.println("ready");
            while (stopping.getCount() > 0) {
                List<Message> messages = lease(connection, lease);
                for (Message message : messages) {
                    work(connection, other, extensions, message);
                }
                if (messages.isEmpty()) {
                    connection.unwrap(PGConnection.class).getNotifications(POLL_MILLISECONDS);
                }
            }
        } finally {
            extensions.shutdownNow();
            stopped.countDown();
        }
    }

    static List<Message> lease(Connection connection, String function) throws SQLException {
        String text = "select iid, token, attempt, data::text from mbus.\"" + function + "\"(?, make_interval(secs => ?))";
        try (PreparedStatement statement = connection.prepareStatement(text)) {
            statement.setInt(1, BATCH);
            statement.setInt(2, TTL_SECONDS);
            List<Message> messages = new ArrayList<>();
            ResultSet rows = statement.executeQuery();
            while (rows.next()) {
                messages.add(new Message(rows.getString(1), rows.getLong(2), rows.getInt(3), rows.getString(4)));
            }
            return messages;
        }
    }

    static void work(Connection connection, Connection other, ScheduledExecutorService extensions, Message message)
            throws SQLException {
        var holding = extensions.scheduleAtFixedRate(
                () -> extend(other, message), TTL_SECONDS / 3, TTL_SECONDS / 3, TimeUnit.SECONDS);
        try {
            handle(message.data(), message.attempt());
            call(connection, "select mbus.ack(?, ?)", message, null);
        } catch (SQLException failure) {
            // Another worker has the message, or will get it: there is nothing to give back.
            if (!LEASE_LOST.equals(failure.getSQLState())) {
                throw failure;
            }
        } catch (RuntimeException failure) {
            call(connection, "select mbus.nack(?, ?, error => ?)", message, failure.toString());
        } finally {
            holding.cancel(false);
        }
    }

    static void extend(Connection connection, Message message) {
        try {
            call(connection, "select mbus.extend(?, ?, make_interval(secs => " + TTL_SECONDS + "))", message, null);
        } catch (SQLException failure) {
            System.err.println("not extended: " + failure.getMessage());
        }
    }

    static void call(Connection connection, String text, Message message, String error) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement(text)) {
            statement.setString(1, message.iid());
            statement.setLong(2, message.token());
            if (error != null) {
                statement.setString(3, error);
            }
            statement.execute();
        }
    }
}
