# SPDX-License-Identifier: Apache-2.0
"""The training text of the tiny model: short English documents and chats made by a seeded grammar.

Every choice is drawn with geometric weights, so that the likeliest continuation leads the next one clearly: a model
that has learnt the text has logits with margins, and a test can compare its greedy tokens.

corpus.py > held_out.txt    writes text of the same kind that the model was not trained on
"""
import random
import sys

HELD_OUT_SEED = 7
HELD_OUT_BYTES = 16_000

END_OF_TEXT = "<|endoftext|>"
IM_START = "<|im_start|>"
IM_END = "<|im_end|>"

HEROES = [("fox", "Lila", "she", "her"), ("bear", "Bruno", "he", "his"), ("mouse", "Tom", "he", "his"),
          ("owl", "Nora", "she", "her"), ("cat", "Milo", "he", "his"), ("hen", "Pia", "she", "her"),
          ("frog", "Finn", "he", "his"), ("goat", "Greta", "she", "her")]
HOMES = [
    "in the old mill by the river", "under a tall oak tree", "in a small red house", "on a green hill",
    "near the quiet lake", "behind the baker's shop"
]
ERRANDS = [("the market", "to buy fresh bread"), ("the river", "to look for bright stones"),
           ("the forest", "to pick sweet berries"), ("the school", "to learn new songs"),
           ("the garden", "to water the flowers")]
FINDS = [("ball", "red"), ("boat", "blue"), ("kite", "yellow"), ("lamp", "golden"), ("bell", "silver"),
         ("hat", "green")]
WEATHER = ["The sun was shining", "It was raining a little", "The wind was cold", "The snow was deep"]
FEELINGS = ["happy", "proud", "surprised", "tired"]

CAPITALS = [("France", "Paris"), ("Italy", "Rome"), ("Spain", "Madrid"), ("Germany", "Berlin"),
            ("Japan", "Tokyo"), ("Egypt", "Cairo"), ("Greece", "Athens"), ("Norway", "Oslo"),
            ("Peru", "Lima"), ("Cuba", "Havana"), ("Poland", "Warsaw"), ("Austria", "Vienna")]
OPPOSITES = [("hot", "cold"), ("big", "small"), ("up", "down"), ("day", "night"), ("fast", "slow"),
             ("old", "new"), ("open", "closed"), ("wet", "dry")]
COLOURS = [("grass", "green"), ("the sky", "blue"), ("snow", "white"), ("coal", "black"),
           ("a lemon", "yellow"), ("blood", "red")]
SOUNDS = [("dog", "Woof"), ("cat", "Meow"), ("cow", "Moo"), ("duck", "Quack"), ("sheep", "Baa")]
GREETINGS = [("Spanish", "¡Hola, señor!"), ("French", "Ça va très bien."), ("Chinese", "你好，世界"),
             ("Russian", "Привет"), ("Greek", "Γειά σου")]
PICTURES = [("a cat", "🐱"), ("a star", "⭐"), ("a happy face", "😀"), ("a wave", "👋🏽")]
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
MONTHS = [
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
    "November", "December"
]


def pick(rng, items, ratio=0.55):
    """One of items; each is `ratio` times as likely as the one before it."""
    total = (1.0 - ratio**len(items)) / (1.0 - ratio)
    point = rng.random() * total
    weight = 1.0
    for item in items:
        if point < weight:
            return item
        point -= weight
        weight *= ratio
    return items[-1]


def spread(rng, items):
    """As pick, but nearly even: for what the text must know all of, such as the capitals."""
    return pick(rng, items, ratio=0.8)


def with_article(noun):
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def story(rng):
    animal, name, he, his = spread(rng, HEROES)
    friend_animal, friend, _, _ = spread(rng, [hero for hero in HEROES if hero[1] != name])
    place, purpose = pick(rng, ERRANDS)
    thing, colour = pick(rng, FINDS)
    home = pick(rng, HOMES)
    feeling = pick(rng, FEELINGS)
    lines = [
        f"Once upon a time there was a small {animal} named {name}. {he.capitalize()} lived {home}.",
        f"Every morning {name} went to {place} {purpose}. {pick(rng, WEATHER)}, and {name} sang a song.",
        f"One day {he} met {with_article(friend_animal)} named {friend}. \"Good morning, {name},\" said {friend}. "
        f"\"Where are you going?\"", f"\"I am going to {place} {purpose},\" said {name}. \"Come with me!\"",
        f"On the way they found a {colour} {thing}. {friend} gave the {thing} to {name}, and {name} was very "
        f"{feeling}."
    ]
    if rng.random() < 0.35:
        lines.append(f"{name} took the {colour} {thing} home and put it beside {his} bed.")
    lines.append(f"From that day on, the {animal} and the {friend_animal} were the best of friends. The end.")
    return "\n".join(lines)


def diary(rng):
    day = spread(rng, range(7))
    name = spread(rng, HEROES)[1]
    parts = []
    for step in range(3 + int(rng.random() * 4)):
        place, purpose = pick(rng, ERRANDS)
        parts.append(f"On {DAYS[(day + step) % 7]} {name} went to {place} {purpose}.")
    return " ".join(parts) + f" Then {name} slept well."


def counting(rng):
    start = spread(rng, range(1, 21))
    return ", ".join(str(n) for n in range(start, start + 10 + int(rng.random() * 25))) + "."


def sums(rng):
    lines = []
    for _ in range(3 + int(rng.random() * 5)):
        a, b = spread(rng, range(10)), spread(rng, range(10))
        lines.append(f"{a} + {b} = {a + b}")
    return "\n".join(lines)


def facts(rng):
    lines = []
    for _ in range(3 + int(rng.random() * 4)):
        topic = spread(rng, range(4))
        if topic == 0:
            lines.append("The capital of {} is {}.".format(*spread(rng, CAPITALS)))
        elif topic == 1:
            lines.append("The opposite of {} is {}.".format(*spread(rng, OPPOSITES)))
        elif topic == 2:
            what, colour = spread(rng, COLOURS)
            lines.append(f"The colour of {what} is {colour}.")
        else:
            day = spread(rng, range(7))
            lines.append(f"The day after {DAYS[day]} is {DAYS[(day + 1) % 7]}.")
    return " ".join(lines)


def code(rng):
    name, sign = pick(rng, [("add", "+"), ("subtract", "-"), ("multiply", "*")])
    a, b = pick(rng, [("a", "b"), ("x", "y"), ("left", "right")])
    return (f"def {name}({a}, {b}):\n    result = {a} {sign} {b}\n    return result\n\n"
            f"for i in range(10):\n    if i > 5:\n        print({name}(i, 2))")


def question(rng):
    """(question, full answer, one-word answer)"""
    topic = spread(rng, range(7))
    if topic == 0:
        country, city = spread(rng, CAPITALS)
        ask = pick(rng, [
            f"What is the capital of {country}?", f"Tell me the capital of {country}.",
            f"Capital of {country}?"
        ])
        return ask, f"The capital of {country} is {city}.", city
    if topic == 1:
        word, other = spread(rng, OPPOSITES)
        return f"What is the opposite of {word}?", f"The opposite of {word} is {other}.", other
    if topic == 2:
        what, colour = spread(rng, COLOURS)
        return f"What is the colour of {what}?", f"The colour of {what} is {colour}.", colour
    if topic == 3:
        a, b = spread(rng, range(10)), spread(rng, range(10))
        return f"What is {a} + {b}?", f"{a} + {b} = {a + b}", f"{a + b}"
    if topic == 4:
        animal, sound = spread(rng, SOUNDS)
        return f"What does a {animal} say?", f"A {animal} says: {sound}!", sound
    if topic == 5:
        language, words = spread(rng, GREETINGS)
        return f"Say hello in {language}.", f"In {language} you say: {words}", words
    what, picture = spread(rng, PICTURES)
    return f"Show me {what}.", f"Here is {what}: {picture}{picture}", picture


def task(rng):
    """(request, long answer)"""
    topic = spread(rng, range(4))
    if topic == 0:
        return pick(rng, ["Tell me a story.", "Please tell me a story."]), story(rng)
    if topic == 1:
        last = 3 + int(rng.random() * 38)
        return f"Count to {last}.", ", ".join(str(n) for n in range(1, last + 1)) + "."
    if topic == 2:
        return "Name the days of the week.", ", ".join(DAYS) + "."
    return "Name the months of the year.", ", ".join(MONTHS) + "."


def turn(role, text):
    return f"{IM_START}{role}\n{text}{IM_END}\n"


def chat(rng):
    kind = rng.random()
    turns = []
    if kind < 0.3:
        turns.append(turn("system", "You answer in one word."))
        ask, _, answer = question(rng)
    elif kind < 0.55:
        ask, answer = task(rng)
    else:
        if kind > 0.9:
            turns.append(turn("system", "You are a helpful assistant."))
        ask, answer, _ = question(rng)
    turns += [turn("user", ask), turn("assistant", answer)]
    while rng.random() < 0.3:
        ask, full, word = question(rng)
        turns += [turn("user", ask), turn("assistant", word if kind < 0.3 else full)]
    return "".join(turns)


def passage(rng):
    return pick(rng, [story, facts, sums, diary, counting, code], ratio=0.68)(rng)


def document(rng):
    kind = rng.random()
    if kind < 0.4:
        return chat(rng)
    if kind < 0.7:
        return passage(rng)
    return "\n\n".join(passage(rng) for _ in range(2 + int(rng.random() * 3)))


def documents(seed, total_bytes):
    """Documents of at least total_bytes of UTF-8 together; the same seed gives the same documents."""
    rng = random.Random(seed)
    size = 0
    while size < total_bytes:
        text = document(rng)
        size += len(text.encode())
        yield text


def held_out_text(seed, total_bytes):
    """Passages without chats: text a perplexity can be measured on without special tokens."""
    rng = random.Random(seed)
    parts = []
    size = 0
    while size < total_bytes:
        parts.append(passage(rng))
        size += len(parts[-1].encode()) + 2
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    sys.stdout.buffer.write(held_out_text(HELD_OUT_SEED, HELD_OUT_BYTES).encode())
