import io.aeron.Aeron;
import io.aeron.ExclusivePublication;
import io.aeron.Image;
import io.aeron.Publication;
import io.aeron.Subscription;
import io.aeron.driver.MediaDriver;
import io.aeron.driver.ThreadingMode;
import io.aeron.logbuffer.FragmentHandler;
import io.aeron.logbuffer.FrameDescriptor;
import java.nio.ByteBuffer;
import java.util.Arrays;
import org.agrona.concurrent.AgentInvoker;
import org.agrona.concurrent.UnsafeBuffer;

/**
 * Aeron's part of the comparison: IPC between two JVMs that poll.
 *
 * <pre>
 * Peer server DIR TOUCH CELL_MS SIZE...     (carries the media driver; answers)
 * Peer client DIR TOUCH CELL_MS SIZE...     (measures and prints)
 * </pre>
 *
 * TOUCH is {@code copied} (the receiver copies every fragment to its place in private memory) or {@code written} (it
 * leaves them in the term buffer); the sender always copies from private memory with {@code offer}. The client prints,
 * for every size, one JSON object with half a round trip and one with the rate of a stream that the server received.
 */
public final class Peer {
    /** The length of the message that ends a phase; every measured message is longer. */
    private static final int END_LENGTH = 1;
    private static final int FRAGMENTS_A_POLL = 16;
    /** Empty polls, and received bytes, between two turns of the media driver. */
    private static final int DRIVER_POLLS = 16_384;
    private static final int DRIVER_BYTES = 1 << 20;
    /** The longest message of Aeron is an eighth of a term. */
    private static final int SMALL_TERM = 16 << 20;
    private static final int LARGE_TERM = 64 << 20;
    /** 16 KiB of payload in a fragment, so that copying in and copying out of a long message overlap. */
    private static final int FRAME_BYTES = (16 << 10) + 32;
    private static final long FIRST_WARM_UP_NS = 1_000_000_000L;
    private static final int BURST_BYTES = 1 << 20;
    private static final int BURST_MESSAGES = 64;

    private final boolean server;
    private final boolean copied;
    private final AgentInvoker driver;
    private final UnsafeBuffer outgoing;
    private final UnsafeBuffer incoming;
    private final FragmentHandler onFragment;
    private ExclusivePublication publication;
    private Image image;
    private int assembled;
    private int arrivedLength;
    private long arrivals;
    private int driverBytes;
    private double[] samples = new double[1 << 20];

    private Peer(boolean server, boolean copied, AgentInvoker driver, int largest) {
        this.server = server;
        this.copied = copied;
        this.driver = driver;
        this.outgoing = new UnsafeBuffer(ByteBuffer.allocateDirect(largest));
        this.incoming = new UnsafeBuffer(ByteBuffer.allocateDirect(largest));
        this.onFragment = (buffer, offset, length, header) -> {
            if (this.copied) {
                incoming.putBytes(assembled, buffer, offset, length);
            }
            assembled += length;
            if ((header.flags() & FrameDescriptor.END_FRAG_FLAG) != 0) {
                arrivedLength = assembled;
                assembled = 0;
                arrivals++;
            }
        };
    }

    /** Joins the two sides by one stream each way. */
    private void open(Aeron aeron, int termLength) {
        String channel = "aeron:ipc?term-length=" + termLength + "|mtu=" + FRAME_BYTES;
        int toServer = termLength >> 10;
        int toClient = toServer + 1;
        Subscription subscription = aeron.addSubscription(channel, server ? toServer : toClient);
        publication = aeron.addExclusivePublication(channel, server ? toClient : toServer);
        while (subscription.hasNoImages() || !publication.isConnected()) {
            turnDriver();
            Thread.yield();
        }
        image = subscription.imageAtIndex(0);
    }

    private void turnDriver() {
        if (driver != null) {
            driver.invoke();
        }
    }

    private void send(int length) {
        for (;;) {
            long position = publication.offer(outgoing, 0, length);
            if (position > 0) {
                return;
            }
            if (position == Publication.CLOSED || position == Publication.MAX_POSITION_EXCEEDED) {
                throw new IllegalStateException("offer refused: " + position);
            }
            turnDriver();
        }
    }

    /** Polls until at least one more message is complete; returns false when that was the end of the phase. */
    private boolean receive() {
        long before = arrivals;
        int empty = 0;
        do {
            long position = image.position();
            if (image.poll(onFragment, FRAGMENTS_A_POLL) == 0) {
                if (++empty == DRIVER_POLLS) {
                    empty = 0;
                    turnDriver();
                    failIfGone();
                }
            } else {
                driverBytes += (int)(image.position() - position);
                if (driverBytes >= DRIVER_BYTES) {
                    driverBytes = 0;
                    turnDriver();
                }
            }
        } while (arrivals == before);
        return arrivedLength != END_LENGTH;
    }

    private void failIfGone() {
        if (image.isClosed()) {
            throw new IllegalStateException("the other side has gone");
        }
    }

    /** The server's part of one size: a ping-pong and a stream, each after its warm-up. */
    private void answer(int size) {
        for (int phase = 0; phase < 2; phase++) {
            while (receive()) {
                send(size);
            }
            send(END_LENGTH);
        }
        for (int phase = 0; phase < 2; phase++) {
            while (receive()) {
                continue;
            }
            send(END_LENGTH);
        }
    }

    /** The client's part of one size. */
    private void measure(int size, long warmUpNs, long cellNs) {
        pingpong(size, warmUpNs);
        int count = pingpong(size, cellNs);
        Arrays.sort(samples, 0, count);
        System.out.printf("{\"size\":%d,\"p50_ns\":%.1f,\"p99_ns\":%.1f}%n",
            size, samples[count / 2], samples[(int)(count * 99L / 100)]);
        stream(size, warmUpNs);
        System.out.printf("{\"size\":%d,\"msgs_per_s\":%.1f}%n", size, stream(size, cellNs));
    }

    private int pingpong(int size, long cellNs) {
        int count = 0;
        long start = System.nanoTime();
        long last = start;
        while (last - start < cellNs && count < samples.length) {
            send(size);
            receive();
            long now = System.nanoTime();
            samples[count++] = (now - last) / 2.0;
            last = now;
        }
        finish();
        return count;
    }

    private double stream(int size, long cellNs) {
        int burst = Math.max(1, Math.min(BURST_MESSAGES, BURST_BYTES / size));
        long count = 0;
        long start = System.nanoTime();
        while (System.nanoTime() - start < cellNs) {
            for (int i = 0; i < burst; i++) {
                send(size);
            }
            count += burst;
        }
        finish();
        return count * 1e9 / (System.nanoTime() - start);
    }

    private void finish() {
        send(END_LENGTH);
        while (receive()) {
            continue;
        }
    }

    private static MediaDriver launchDriver(String directory) {
        return MediaDriver.launch(new MediaDriver.Context()
            .aeronDirectoryName(directory)
            .dirDeleteOnStart(true)
            .dirDeleteOnShutdown(true)
            .threadingMode(ThreadingMode.INVOKER));
    }

    private static void run(String[] arguments) {
        boolean server = arguments[0].equals("server");
        boolean copied = arguments[2].equals("copied");
        long cellNs = Long.parseLong(arguments[3]) * 1_000_000L;
        int[] sizes = Arrays.stream(arguments, 4, arguments.length).mapToInt(Integer::parseInt).toArray();
        int largest = Arrays.stream(sizes).max().getAsInt();
        MediaDriver media = server ? launchDriver(arguments[1]) : null;
        AgentInvoker driver = server ? media.sharedAgentInvoker() : null;
        Aeron.Context context = new Aeron.Context().aeronDirectoryName(arguments[1]).preTouchMappedMemory(true);
        if (server) {
            context.driverAgentInvoker(driver);
        }
        try (Aeron aeron = Aeron.connect(context)) {
            Peer peer = new Peer(server, copied, driver, largest);
            int openTerm = 0;
            for (int size : sizes) {
                int term = size <= SMALL_TERM / 8 ? SMALL_TERM : LARGE_TERM;
                if (term != openTerm) {
                    peer.open(aeron, term);
                }
                if (server) {
                    peer.answer(size);
                } else {
                    peer.measure(size, openTerm == 0 ? FIRST_WARM_UP_NS : cellNs / 2, cellNs);
                }
                openTerm = term;
            }
            peer.awaitGone();
        } finally {
            if (media != null) {
                media.close();
            }
        }
    }

    /** The server stays until the client has read its last message and left. */
    private void awaitGone() {
        while (server && publication.isConnected()) {
            turnDriver();
            Thread.yield();
        }
    }

    /** See the class. */
    public static void main(String[] arguments) {
        if (arguments.length < 5) {
            System.err.println("usage: Peer server|client DIR copied|written CELL_MS SIZE...");
            System.exit(2);
        }
        run(arguments);
    }
}
