import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.kafka.common.utils.Exit;

/**
 * Kafka's command-line tools, many in one JVM: a line of stdin is a JSON array of a class with a main method and its
 * arguments, a line of stdout is what it printed and the code that it exited with.
 * tests/support/java_tools.py writes the one and reads the other.
 */
public final class Tools {
    private static final ObjectMapper JSON = new ObjectMapper();

    private static final class Exited extends RuntimeException {
        final int code;

        Exited(int code) {
            this.code = code;
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        Exit.setExitProcedure((code, message) -> {
            throw new Exited(code);
        });
        BufferedReader lines = new BufferedReader(
            new InputStreamReader(new FileInputStream(FileDescriptor.in), StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            answers.println(JSON.writeValueAsString(run(JSON.readValue(line, String[].class))));
            answers.flush();
        }
    }

    private static ObjectNode run(String[] command) throws Exception {
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream stream = new PrintStream(printed, true, StandardCharsets.UTF_8);
        PrintStream out = System.out;
        PrintStream err = System.err;
        System.setOut(stream);
        System.setErr(stream);
        int code = 0;
        try {
            String[] arguments = Arrays.copyOfRange(command, 1, command.length);
            Class.forName(command[0]).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException failed) {
            code = exitCode(failed.getCause(), stream);
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
        return JSON.createObjectNode().put("code", code).put("printed", printed.toString(StandardCharsets.UTF_8));
    }

    private static int exitCode(Throwable cause, PrintStream stream) {
        if (cause instanceof Exited)
            return ((Exited) cause).code;
        StringWriter trace = new StringWriter();
        cause.printStackTrace(new PrintWriter(trace));
        stream.print(trace);
        return 1;
    }
}
