"""pydantic-ai's output_type, as its docs/output.md has it, with each of its models (ANED_KIND)."""
import asyncio
import os

from case import main
from pydantic_agent import model
from pydantic_ai import Agent, NativeOutput, PromptedOutput, ToolOutput
from wanted import QUESTION, Address, Bounded, Colour, Formats, Mail, Person, Phone, Place, came


def run(output, kind):
    came(Agent(model(), output_type=output, retries=0).run_sync(QUESTION).output, kind)


def tool():
    for kind in (Person, Bounded, Formats, Colour):
        run(kind, kind)
    run([Mail, Phone], (Mail, Phone))
    run(ToolOutput(Person, name="a_person", strict=True), Person)
    run(list[Address], list)


def native():
    """Anthropic's SDK moves bounds and patterns into the description."""
    for kind in (Person,) if os.environ["ANED_KIND"] == "anthropic" else (Person, Bounded, Formats):
        run(NativeOutput(kind), kind)
    run(NativeOutput([Mail, Phone], name="contact"), (Mail, Phone))


def prompted():
    run(PromptedOutput(Place), Place)


def stream():
    async def streamed(output):
        async with Agent(model(), output_type=output, retries=0).run_stream(QUESTION) as r:
            async for _ in r.stream_output(debounce_by=None):
                pass
            return await r.get_output()
    came(asyncio.run(streamed(Person)), Person)
    came(asyncio.run(streamed(NativeOutput(Person))), Person)


if __name__ == "__main__":
    main(tool, native, prompted, stream)
